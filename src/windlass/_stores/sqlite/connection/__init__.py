"""Connections to a SQLite file: open, lock, threads, errors."""
