"""The store on Postgres: the main one."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
