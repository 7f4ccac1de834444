"""A store behind `windlass serve`, over HTTP."""

from .store import HttpStore

__all__ = ["HttpStore"]
