"""The store on Redis or Valkey: fast, with the semantics of every other store."""

from .store import RedisStore

__all__ = ["RedisStore"]
