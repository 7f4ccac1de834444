"""Claim on Postgres: in order, by lanes, under limits."""
