"""Decisions as pure functions: no clock, no randomness, no I/O; `now` and `draw` are arguments."""
