"""Enqueue on Postgres: one statement, COPY for many, and coalesced concurrent calls."""
