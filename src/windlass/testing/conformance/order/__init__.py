"""Promises about what runs next."""
