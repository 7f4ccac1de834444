"""Rules that every store keeps, without I/O."""
