"""Django's connection to Postgres, by psycopg 3 or psycopg2: asked like any other query of Django's."""

from collections.abc import Sequence
from datetime import timezone
from typing import Any

from ..script import Row
from .parameters import percent, plain_rows


class Lent:
    """A `django.db.connection` of the caller's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.ensure_connection()
        self.identity: object = connection.connection

    @property
    def commits_by_itself(self) -> bool:
        """Whether no atomic block is open, and Django is to commit every query."""
        return bool(not self._connection.in_atomic_block and self._connection.get_autocommit())

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """The rows of one statement."""
        asked = percent(sql)
        with self._connection.cursor() as cursor:
            _keep_zones(cursor.cursor)
            cursor.execute(asked.sql, asked.given(parameters) or None)
            return plain_rows(cursor.fetchall()) if cursor.description else []


def _keep_zones(cursor: Any) -> None:
    """Have instants come with their zones: without USE_TZ Django drops them."""
    if hasattr(cursor, "tzinfo_factory"):  # psycopg2
        cursor.tzinfo_factory = timezone
    else:
        from psycopg.types.datetime import TimestamptzLoader  # noqa: PLC0415  the driver that is there

        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
