"""Conformance: what workers use."""
