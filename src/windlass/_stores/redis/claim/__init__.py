"""Claim on Redis: in order, or as the planner picks; and relayout."""
