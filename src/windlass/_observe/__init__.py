"""Observability: one event for every step of a task, for logs, metrics and traces."""
