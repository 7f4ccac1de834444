"""The store in one SQLite file: nothing to install, nothing to run beside it, durable across power loss."""

from .store import SQLiteStore

__all__ = ["SQLiteStore"]
