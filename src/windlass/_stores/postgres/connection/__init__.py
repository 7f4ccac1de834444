"""Connections to Postgres: address, pool, client."""
