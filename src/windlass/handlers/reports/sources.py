"""Rows of a report from a user's own database or function."""

import asyncio
import inspect
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..._model.brief import Brief, without_frames
from ...errors import InvalidOption
from ..settings import required
from .period import Period

MAX_ROWS = 5_000


class Query(Brief, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query of a database, sqlite:///… or postgresql://…, which it cannot change.

    `sql`: its first parameter is when the period begins and its second when it ends: `?1` and `?2` on SQLite,
    as text in ISO 8601 (UTC), `$1` and `$2` on Postgres.
    """

    database: str
    sql: str


Source = Query | Callable[[Period], Any]
"""A query, or a function of the period that returns rows, async or not."""


async def rows_of(source: Source, period: Period, seconds: float) -> list[dict[str, Any]]:
    """Return the rows of a source. Raises InvalidOption if there are too many, or they are no rows."""
    async with asyncio.timeout(seconds):
        if not isinstance(source, Query):
            if inspect.iscoroutinefunction(source):
                return checked_rows(await source(period))
            return checked_rows(await asyncio.to_thread(source, period))
        if source.database.startswith("sqlite:///"):
            return checked_rows(await asyncio.to_thread(_sqlite_rows, source, period, seconds))
        return checked_rows(await _postgres_rows(source, period, seconds))


def checked_rows(given: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as dicts. Raises InvalidOption."""
    rows = [*given]
    if len(rows) > MAX_ROWS:
        raise InvalidOption(f"a report has at most {MAX_ROWS:,} rows")
    if not all(isinstance(row, Mapping) for row in rows):
        raise InvalidOption("each row of a report must be an object with a value for each column")
    return [dict(row) for row in rows]


def check_source(name: str, source: object) -> None:
    """Raise InvalidOption unless a source is a query of a known database, or a function."""
    if isinstance(source, Query):
        if source.database.startswith(("postgresql://", "postgres://")):
            required("asyncpg", "postgres", "a report from Postgres")
        elif not source.database.startswith("sqlite:///"):
            raise InvalidOption(f"source {name}: database must be sqlite:///… or postgresql://…")
    elif not callable(source):
        raise InvalidOption(f"source {name} must be a Query or a function")


def _sqlite_rows(source: Query, period: Period, seconds: float) -> list[dict[str, Any]]:
    path = Path(source.database.removeprefix("sqlite:///")).resolve()
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=seconds)
    try:
        cursor = connection.execute(source.sql, (period.since.isoformat(), period.until.isoformat()))
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(MAX_ROWS + 1)]
    finally:
        connection.close()


async def _postgres_rows(source: Query, period: Period, seconds: float) -> list[dict[str, Any]]:
    asyncpg = required("asyncpg", "postgres", "a report from Postgres")
    try:
        connection = await asyncpg.connect(source.database, timeout=seconds, command_timeout=seconds)
    except Exception as error:
        without_frames(error)
        raise
    try:
        async with connection.transaction(readonly=True):
            cursor = await connection.cursor(source.sql, period.since, period.until)
            return [dict(row) for row in await cursor.fetch(MAX_ROWS + 1)]
    finally:
        await connection.close(timeout=5)
