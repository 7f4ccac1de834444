"""Promises to the keeper."""
