"""asyncpg: its connections, and a pool's proxies of them."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from ..script import Row
from .parameters import dollars_as_text


class Lent:
    """An asyncpg connection of the caller's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.identity: object = getattr(connection, "_con", connection)  # A proxy lasts for one loan only.

    @property
    def commits_by_itself(self) -> bool:
        """Whether no transaction is open: then every statement is one."""
        return not self._connection.is_in_transaction()

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """The rows of one statement."""
        asked = dollars_as_text(sql)
        given = asked.given(parameters)
        rows: Sequence[Row] = await self._connection.fetch(asked.sql, *given, record_class=asyncpg.Record)
        return rows
