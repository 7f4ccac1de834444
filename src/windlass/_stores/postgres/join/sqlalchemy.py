"""SQLAlchemy 2: its own connections, never those of the driver below, which may not have begun yet."""

from collections.abc import Sequence
from typing import Any

from ....errors import NotSupported
from ..script import Row
from .parameters import dollars_as_text, percent, plain_rows


class Lent:
    """A Core connection of the caller's; it begins a transaction by itself."""

    def __init__(self, connection: Any) -> None:
        if connection.dialect.name != "postgresql":
            raise NotSupported(f"this connection of SQLAlchemy's is to {connection.dialect.name}")
        self._connection = connection
        self._in_dollars = connection.dialect.paramstyle == "numeric_dollar"
        self.identity: object = connection.connection.driver_connection

    @property
    def commits_by_itself(self) -> bool:
        """Whether its isolation level is AUTOCOMMIT."""
        return bool(self._connection.connection.dbapi_connection.autocommit)

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """The rows of one statement."""
        asked = dollars_as_text(sql) if self._in_dollars else percent(sql)
        result = self._connection.exec_driver_sql(asked.sql, tuple(asked.given(parameters)) or None)
        return plain_rows(result.fetchall()) if result.returns_rows else []
