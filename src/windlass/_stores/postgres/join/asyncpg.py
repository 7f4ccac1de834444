"""asyncpg: connections, and the proxies that a pool hands out."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from ..script import Row
from .parameters import dollars_as_text


class Connection:
    """An asyncpg connection of the caller's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.identity: object = getattr(
            connection, "_con", connection
        )  # A proxy lasts only until its connection is released.

    @property
    def is_autocommit(self) -> bool:
        """Whether no transaction is open."""
        return not self._connection.is_in_transaction()

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """Run one statement and return its rows."""
        prepared = dollars_as_text(sql)
        given = prepared.bind(parameters)
        rows: Sequence[Row] = await self._connection.fetch(prepared.sql, *given, record_class=asyncpg.Record)
        return rows
