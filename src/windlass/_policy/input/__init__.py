"""From what a caller gives to a validated task."""
