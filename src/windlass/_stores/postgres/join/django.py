"""Django's connection to Postgres, with psycopg 3 or psycopg2, used through Django's own cursors."""

from collections.abc import Sequence
from datetime import timezone
from typing import Any

from ..rows import Row
from .parameters import percent, plain_rows


class Connection:
    """A `django.db.connection` of the caller's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.ensure_connection()
        self.identity: object = connection.connection

    @property
    def is_autocommit(self) -> bool:
        """Whether no atomic block is open and Django commits each query."""
        return bool(not self._connection.in_atomic_block and self._connection.get_autocommit())

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        prepared = percent(sql)
        with self._connection.cursor() as cursor:
            _keep_zones(cursor.cursor)
            cursor.execute(prepared.sql, prepared.bind(parameters) or None)
            return plain_rows(cursor.fetchall()) if cursor.description else []


def _keep_zones(cursor: Any) -> None:
    """Read timestamps with their time zones, which Django drops without USE_TZ."""
    if hasattr(cursor, "tzinfo_factory"):  # psycopg2
        cursor.tzinfo_factory = timezone
    else:
        from psycopg.types.datetime import TimestamptzLoader  # noqa: PLC0415 - only if it is the driver

        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
