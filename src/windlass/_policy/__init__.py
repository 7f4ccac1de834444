"""The decisions. Pure: no clock, no randomness, no I/O; `now` and `draw` are arguments."""
