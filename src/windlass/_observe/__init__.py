"""Seeing: one event for every step, from one place, to whoever wants it."""
