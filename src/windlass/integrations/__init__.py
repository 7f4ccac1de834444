"""Integrations with other frameworks. Each needs an extra of its own name."""
