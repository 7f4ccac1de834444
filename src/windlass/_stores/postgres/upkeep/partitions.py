"""The history's partitions, one for each day (UTC) on which tasks ended: created ahead, dropped once expired.

Creating or dropping one takes locks that settlements and queries wait for. So if a lock is not granted at
once, the partition is left for the next time; until then its rows are in `history_rest`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import asyncpg

from ...._model.state import State
from ..connection.client import Connections
from ..script import Query
from ..statements import compose, in_schema

REST = "history_rest"
"""The default partition, for rows of days without one."""

DAYS_AHEAD = 2
_DAY = timedelta(days=1)
_DELETE_SECONDS = 600.0
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '500ms'"
_STATEMENT_TIMEOUT = "SET LOCAL statement_timeout = '5s'"

# Attached, which does not block settlements as creating it in place would. LIKE copies no storage parameters.
# Rows are only inserted and soon dropped with the table, so it is analysed but not vacuumed.
_CREATE = """
CREATE TABLE windlass.{name} (LIKE windlass.history INCLUDING ALL EXCLUDING INDEXES)
WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_scale_factor = 0.5);
ALTER TABLE windlass.history ATTACH PARTITION windlass.{name}
FOR VALUES FROM ('{first} 00:00:00+00') TO ('{last} 00:00:00+00')
"""

_CREATE_AROUND = """
DO $$
DECLARE
    today date := (pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    FOR n IN {behind}..{ahead} LOOP
        EXECUTE pg_catalog.format(
            $create$
{create}
$create$,
            pg_catalog.to_char(today + n, 'YYYYMMDD'),
            pg_catalog.to_char(today + n, 'YYYY-MM-DD'),
            pg_catalog.to_char(today + n + 1, 'YYYY-MM-DD')
        );
    END LOOP;
END
$$"""

# A lock was not granted; rows of that day are in the default partition; it took too long; another process
# created it meanwhile (reported in several ways); the tables are another user's, as `windlass check` reports.
_TRY_LATER = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.CheckViolationError,
    asyncpg.QueryCanceledError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.UniqueViolationError,
    asyncpg.InvalidObjectDefinitionError,
    asyncpg.InsufficientPrivilegeError,
)


def around(now: datetime) -> list[date]:
    """Return the days that should have a partition: yesterday to the day after tomorrow."""
    today = now.astimezone(UTC).date()
    return [today + n * _DAY for n in range(-1, DAYS_AHEAD + 1)]


def create_statement(day: date, schema: str) -> str:
    return in_schema(_CREATE.format(name=_name(day), first=day, last=day + _DAY), schema)


def create_script(schema: str) -> str:
    """Return SQL that creates the partitions around the moment at which it is run."""
    create = _CREATE.strip().format(name="history_%1$s", first="%2$s", last="%3$s")
    return in_schema(_CREATE_AROUND.format(create=create, behind=-1, ahead=DAYS_AHEAD), schema)


async def prepare(connections: Connections, now: datetime) -> int:
    """Create the missing partitions around now; return how many. A single read if there are none missing."""
    return await ensure_days(connections, around(now))


async def ensure_days(connections: Connections, days: Sequence[date]) -> int:
    """Create the missing partitions of these days, as far as possible; return how many."""
    present = set(await existing(connections))
    return sum([await _create(connections, day) for day in days if day not in present])


async def existing(connections: Connections) -> list[date]:
    """Return the days that have a partition, oldest first."""
    rows = await connections.fetch(Query("partitions"))
    return [day for row in rows if (day := day_of(row[0])) is not None]


async def drop_before(connections: Connections, day: date) -> Counter[tuple[str, State]]:
    """Drop the partitions of earlier days with their tasks' attempts and keys; count by queue and state.

    A day is kept while its partition is locked, or while a task waits for one of its tasks.
    """
    dropped: Counter[tuple[str, State]] = Counter()
    for old in await existing(connections):
        if old < day:
            dropped += await _drop(connections, old)
    return dropped


async def _create(connections: Connections, day: date) -> bool:
    try:
        async with connections.one() as connection, connections.transaction(connection):
            await connection.execute(
                f"{_LOCK_TIMEOUT}; {_STATEMENT_TIMEOUT}; {create_statement(day, connections.address.schema)}"
            )
    except _TRY_LATER:
        return False
    return True


async def _drop(connections: Connections, day: date) -> Counter[tuple[str, State]]:
    schema, name = connections.address.schema, _name(day)
    table = f"{schema}.{name}"
    try:
        async with connections.one() as connection, connections.transaction(connection):
            # Readers go on; replaying one of its tasks waits.
            await connection.execute(f"{_LOCK_TIMEOUT}; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
            forget = compose("delete_day_details", schema, partition=name)
            deleted = await connection.fetch(forget, timeout=_DELETE_SECONDS)
            if not deleted:
                return Counter()
            await connection.execute(f"DROP TABLE {table}")
            return Counter({(row[0], State(row[1])): row[2] for row in deleted if row[2]})
    except (*_TRY_LATER, asyncpg.UndefinedTableError):
        return Counter()


def _name(day: date) -> str:
    return f"history_{day:%Y%m%d}"


def day_of(name: str) -> date | None:
    """Return the day of a partition by its name; None for any other table."""
    found = re.fullmatch(r"history_(\d{4})(\d\d)(\d\d)", name)
    return None if found is None else date(*map(int, found.groups()))
