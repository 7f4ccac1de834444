"""The store on Postgres: the main one."""

from .schema import migration_script
from .store import PostgresStore

__all__ = ["PostgresStore", "migration_script"]
