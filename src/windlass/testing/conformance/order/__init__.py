"""Conformance: what runs next."""
