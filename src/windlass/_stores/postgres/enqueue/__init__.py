"""Enqueue on Postgres: plain, coalesced, by COPY, repeated."""
