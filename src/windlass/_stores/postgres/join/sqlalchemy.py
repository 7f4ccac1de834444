"""SQLAlchemy 2: its own connections, as the driver's below may not have begun the transaction yet."""

from collections.abc import Sequence
from typing import Any

from ....errors import NotSupported
from ..rows import Row
from .parameters import dollars_as_text, percent, plain_rows


class Connection:
    """A Core connection of the caller's, which begins a transaction by itself."""

    def __init__(self, connection: Any) -> None:
        if connection.dialect.name != "postgresql":
            raise NotSupported(f"this SQLAlchemy connection is to {connection.dialect.name}, not to Postgres")
        self._connection = connection
        self._numbered = connection.dialect.paramstyle == "numeric_dollar"
        self.identity: object = connection.connection.driver_connection

    @property
    def is_autocommit(self) -> bool:
        """Whether its isolation level is AUTOCOMMIT."""
        return bool(self._connection.connection.dbapi_connection.autocommit)

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        prepared = dollars_as_text(sql) if self._numbered else percent(sql)
        result = self._connection.exec_driver_sql(prepared.sql, tuple(prepared.bind(parameters)) or None)
        return plain_rows(result.fetchall()) if result.returns_rows else []
