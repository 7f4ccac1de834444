"""Supervised processes of one command: start, watch, replace and stop them. Knows nothing of tasks."""
