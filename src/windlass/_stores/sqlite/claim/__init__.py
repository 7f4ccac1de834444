"""Claim on SQLite: queries, queue rules, usage, relayout."""
