"""Promises to workers."""
