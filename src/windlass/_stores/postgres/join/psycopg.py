"""psycopg 3: blocking connections and async ones."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types import numeric
from psycopg.types.array import ArrayBinaryLoader
from psycopg.types.bool import BoolBinaryLoader, BoolDumper
from psycopg.types.datetime import IntervalBinaryLoader, TimestamptzBinaryLoader
from psycopg.types.string import ByteaBinaryLoader, StrDumperUnknown, TextBinaryLoader

from ..rows import Row
from .parameters import dollars

C = TypeVar("C", bound="psycopg.Connection[Any] | psycopg.AsyncConnection[Any]")


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
    adapters.register_dumper(str, StrDumperUnknown)
    adapters.register_dumper(bool, BoolDumper)
    adapters.register_dumper(int, numeric.IntDumper)
    adapters.register_dumper(float, numeric.FloatDumper)
    for name, loader in (
        ("text", _Text),
        ("bool", BoolBinaryLoader),
        ("int4", numeric.Int4BinaryLoader),
        ("int8", numeric.Int8BinaryLoader),
        ("float8", numeric.Float8BinaryLoader),
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


class _Lent(Generic[C]):
    def __init__(self, connection: C) -> None:
        self._connection = connection
        self.identity: object = connection

    @property
    def is_autocommit(self) -> bool:
        """Whether no transaction is open and the next statement begins none."""
        given = self._connection
        return given.autocommit and given.info.transaction_status == TransactionStatus.IDLE


class Connection(_Lent["psycopg.Connection[Any]"]):
    """A blocking connection of the caller's."""

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        prepared = dollars(sql)
        with _Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(prepared.sql.encode(), prepared.bind(parameters), binary=True)
            try:
                return cursor.fetchall()
            except psycopg.ProgrammingError:
                if _has_no_rows(cursor):
                    return []
                raise


class AsyncConnection(_Lent["psycopg.AsyncConnection[Any]"]):
    """An async connection of the caller's."""

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
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
