"""asyncpg: connections, and the proxies that a pool hands out."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from ..rows import Row
from .parameters import dollars_as_text


class Connection:
    """An asyncpg connection of the caller's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # Not a pool's proxy, which lasts only until its connection is released.
        self.identity: object = getattr(connection, "_con", connection)

    @property
    def is_autocommit(self) -> bool:
        return not self._connection.is_in_transaction()

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        prepared = dollars_as_text(sql)
        rows: Sequence[Row] = await self._connection.fetch(
            prepared.sql, *prepared.bind(parameters), record_class=asyncpg.Record
        )
        return rows
