"""The executable specification of a store, and the store of unit tests. Volatile."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
