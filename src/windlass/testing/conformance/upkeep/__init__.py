"""Conformance: what the keeper uses."""
