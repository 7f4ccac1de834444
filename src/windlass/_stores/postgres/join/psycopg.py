"""psycopg 3: blocking connections and async ones."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.array import ArrayBinaryLoader
from psycopg.types.bool import BoolBinaryLoader, BoolDumper
from psycopg.types.datetime import IntervalBinaryLoader, TimestamptzBinaryLoader
from psycopg.types.numeric import (
    Float8BinaryLoader,
    FloatDumper,
    Int4BinaryLoader,
    Int8BinaryLoader,
    IntDumper,
)
from psycopg.types.string import ByteaBinaryLoader, StrDumperUnknown, TextBinaryLoader

from ..script import Row
from .parameters import dollars


class _Instant(TimestamptzBinaryLoader):
    """Timestamps in UTC, whatever the connection's time zone."""

    def load(self, data: Buffer) -> datetime:
        return super().load(data).astimezone(UTC)


class _Text(TextBinaryLoader):
    """Text as str, also from a database with encoding SQL_ASCII."""

    def load(self, data: Buffer) -> str:
        found = super().load(data)
        return found if isinstance(found, str) else found.decode()


def _adapters() -> AdaptersMap:
    """Return psycopg's defaults for the types that the statements use, whatever the caller has registered."""
    adapters = AdaptersMap(psycopg.adapters)
    for kind, dumper in ((str, StrDumperUnknown), (bool, BoolDumper), (int, IntDumper), (float, FloatDumper)):
        adapters.register_dumper(kind, dumper)
    for name, loader in (
        ("text", _Text),
        ("bool", BoolBinaryLoader),
        ("int4", Int4BinaryLoader),
        ("int8", Int8BinaryLoader),
        ("float8", Float8BinaryLoader),
        ("bytea", ByteaBinaryLoader),
        ("interval", IntervalBinaryLoader),
        ("timestamptz", _Instant),
    ):
        adapters.register_loader(name, loader)
    adapters.register_loader(adapters.types["text"].array_oid, ArrayBinaryLoader)
    return adapters


_ADAPTERS = _adapters()


class _Cursor(psycopg.RawCursor[Row]):
    adapters = _ADAPTERS


class _AsyncCursor(psycopg.AsyncRawCursor[Row]):
    adapters = _ADAPTERS


class Connection:
    """A blocking connection of the caller's."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        self.identity: object = connection

    @property
    def is_autocommit(self) -> bool:
        """Whether no transaction is open and the next statement begins none."""
        return _is_autocommit(self._connection)

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """Run one statement and return its rows."""
        prepared = dollars(sql)
        with _Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(prepared.sql.encode(), prepared.bind(parameters), binary=True)
            try:
                return cursor.fetchall()
            except psycopg.ProgrammingError:
                if _has_no_rows(cursor):
                    return []
                raise


class AsyncConnection:
    """An async connection of the caller's."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self._connection = connection
        self.identity: object = connection

    @property
    def is_autocommit(self) -> bool:
        """Whether no transaction is open and the next statement begins none."""
        return _is_autocommit(self._connection)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """Run one statement and return its rows."""
        prepared = dollars(sql)
        async with _AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(prepared.sql.encode(), prepared.bind(parameters), binary=True)
            try:
                return await cursor.fetchall()
            except psycopg.ProgrammingError:
                if _has_no_rows(cursor):
                    return []
                raise


def _has_no_rows(cursor: _Cursor | _AsyncCursor) -> bool:
    """Whether the statement succeeded and returns no rows, which in a pipeline is known only afterwards."""
    return cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.COMMAND_OK


def _is_autocommit(connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> bool:
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
