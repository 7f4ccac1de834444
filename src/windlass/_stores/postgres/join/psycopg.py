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
    """In UTC, whatever the connection's time zone."""

    def load(self, data: Buffer) -> datetime:
        return super().load(data).astimezone(UTC)


class _Text(TextBinaryLoader):
    """A str, also from a database that has no encoding."""

    def load(self, data: Buffer) -> str:
        found = super().load(data)
        return found if isinstance(found, str) else found.decode()


def _adapters() -> AdaptersMap:
    """psycopg's own way with the few types that we use, whatever the caller has changed about it."""
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


class Lent:
    """A blocking connection of the caller's."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        self.identity: object = connection

    @property
    def commits_by_itself(self) -> bool:
        """Whether no transaction is open, nor begun by the next statement."""
        return _commits_by_itself(self._connection)

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """The rows of one statement."""
        asked = dollars(sql)
        with _Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(asked.sql.encode(), asked.given(parameters), binary=True)
            try:
                return cursor.fetchall()
            except psycopg.ProgrammingError:
                if _has_no_rows(cursor):
                    return []
                raise


class LentAsync:
    """An async connection of the caller's."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self._connection = connection
        self.identity: object = connection

    @property
    def commits_by_itself(self) -> bool:
        """Whether no transaction is open, nor begun by the next statement."""
        return _commits_by_itself(self._connection)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        """The rows of one statement."""
        asked = dollars(sql)
        async with _AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(asked.sql.encode(), asked.given(parameters), binary=True)
            try:
                return await cursor.fetchall()
            except psycopg.ProgrammingError:
                if _has_no_rows(cursor):
                    return []
                raise


def _has_no_rows(cursor: _Cursor | _AsyncCursor) -> bool:
    """Whether the statement was done and is one that gives none. In a pipeline that is not known before."""
    return cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.COMMAND_OK


def _commits_by_itself(connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> bool:
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
