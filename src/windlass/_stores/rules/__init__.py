"""Rules that every store follows, without I/O."""
