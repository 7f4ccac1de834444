"""The history's partitions, one for each day (UTC) on which tasks ended: made beforehand, later dropped.

Making or dropping one takes locks that settling and asking have to wait for. So nobody waits here for long:
what cannot be had at once is left for the next time, and until then the rows lie in `history_rest`.
"""

from datetime import UTC, date, datetime, timedelta

import asyncpg

from ..connection.client import Connections
from ..script import Ask
from ..statements import compose, in_schema

REST = "history_rest"
"""The partition for rows that no day's partition takes."""

DAYS_AHEAD = 2
_DAY = timedelta(days=1)
_LONG_SECONDS = 600.0
_BRIEFLY = "SET LOCAL lock_timeout = '500ms'"
_GIVE_UP = "SET LOCAL statement_timeout = '5s'"

# Attached rather than made in place: that way tasks go on being settled meanwhile. What the partition is made
# like has no storage parameters; insert-only and soon dropped, it is analysed but not vacuumed.
_MAKE = """
CREATE TABLE windlass.{name} (LIKE windlass.history INCLUDING ALL EXCLUDING INDEXES)
WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_scale_factor = 0.5);
ALTER TABLE windlass.history ATTACH PARTITION windlass.{name}
FOR VALUES FROM ('{first} 00:00:00+00') TO ('{last} 00:00:00+00')
"""

# Somebody holds a lock · rows of that day lie in the rest · too slow · made by another meanwhile, in one of
# the ways in which the server notices · the tables are another user's, and `windlass check` says so.
_GIVES_WAY = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.CheckViolationError,
    asyncpg.QueryCanceledError,
    asyncpg.DuplicateTableError,
    asyncpg.UniqueViolationError,
    asyncpg.InvalidObjectDefinitionError,
    asyncpg.InsufficientPrivilegeError,
)


def around(now: datetime) -> list[date]:
    """The days that should be there: yesterday to the day after tomorrow."""
    today = now.astimezone(UTC).date()
    return [today + n * _DAY for n in range(-1, DAYS_AHEAD + 1)]


def making(day: date, schema: str) -> str:
    """The statements that make one day's partition."""
    return in_schema(_MAKE.format(name=_name(day), first=day, last=day + _DAY), schema)


async def prepare(connections: Connections, now: datetime) -> int:
    """See that the days around now are there; answers with how many were made. One read, if they are."""
    return await _ensure(connections, around(now))


async def ensure_days(connections: Connections, first: date, number: int) -> int:
    """See that so many days from the first are there, as far as possible; how many were made."""
    return await _ensure(connections, [first + n * _DAY for n in range(number)])


async def existing(connections: Connections) -> list[date]:
    """The days that have a partition, oldest first."""
    rows = await connections.fetch(Ask("partitions"))
    return [day for row in rows if (day := day_of(row[0])) is not None]


async def drop_before(connections: Connections, day: date) -> int:
    """Drop the days before this one, with what hangs on their tasks; how many tasks went.

    A day is left alone while somebody uses it, or while a task waits for one of its tasks.
    """
    return sum([await _drop(connections, old) for old in await existing(connections) if old < day])


async def _ensure(connections: Connections, days: list[date]) -> int:
    there = set(await existing(connections))
    return sum([await _make(connections, day) for day in days if day not in there])


async def _make(connections: Connections, day: date) -> bool:
    try:
        async with connections.one() as connection, connections.transaction(connection):
            await connection.execute(f"{_BRIEFLY}; {_GIVE_UP}; {making(day, connections.address.schema)}")
    except _GIVES_WAY:
        return False
    return True


async def _drop(connections: Connections, day: date) -> int:
    schema, name = connections.address.schema, _name(day)
    table = f"{schema}.{name}"
    try:
        async with connections.one() as connection, connections.transaction(connection):
            # Readers may go on; who would bring one of its tasks back to life has to wait for the end.
            await connection.execute(f"{_BRIEFLY}; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
            forget = compose("forget_day", schema, partition=name)
            going = await connection.fetchval(forget, timeout=_LONG_SECONDS)
            if going is None:
                return 0
            await connection.execute(f"DROP TABLE {table}")
            return int(going)
    except (*_GIVES_WAY, asyncpg.UndefinedTableError):
        return 0


def _name(day: date) -> str:
    return f"history_{day:%Y%m%d}"


def day_of(name: str) -> date | None:
    """The day of a partition by its name; None for a table that is no day's."""
    digits = name.removeprefix("history_")
    if not (digits.isdecimal() and len(digits) == 8):
        return None
    return date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
