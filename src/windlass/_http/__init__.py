"""The HTTP API: producers, workers and operators in any language."""
