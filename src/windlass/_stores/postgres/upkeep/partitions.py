"""The history's partitions, one for each day (UTC) on which tasks ended: created ahead, dropped once expired.

An expired day of which other tasks need some records is replaced by one that has only these.

Creating or dropping one takes locks that settlements and queries wait for. So if a lock is not granted at
once, the partition is left for the next time; until then its rows are in `history_rest`.
"""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import asyncpg

from ...._model.state import State
from ..connection.client import Connections
from ..rule_player import delete_ended
from ..script import Query, Script
from ..statements import compose, in_schema

logger = logging.getLogger("windlass.keeper")

REST = "history_rest"
"""The default partition, for rows of days without one."""

DAYS_AHEAD = 2
_DAY = timedelta(days=1)
_DELETE_SECONDS = 600.0
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '500ms'"
_STATEMENT_TIMEOUT = "SET LOCAL statement_timeout = '5s'"

# Attached, which does not block settlements as creating it in place would. LIKE copies no storage parameters.
# Rows are only inserted and soon dropped with the table, so it is analysed but not vacuumed.
_CREATE_APART = """
CREATE TABLE windlass.{name} (LIKE windlass.history INCLUDING ALL EXCLUDING INDEXES)
WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_scale_factor = 0.5);
"""
# With indexes, to look up what was copied; they become those of the partition.
_CREATE_KEPT = _CREATE_APART.replace("{name}", "{name}_kept").replace(" EXCLUDING INDEXES", "")
_ATTACH = """
ALTER TABLE windlass.history ATTACH PARTITION windlass.{name}
FOR VALUES FROM ('{first} 00:00:00+00') TO ('{last} 00:00:00+00')
"""
_CREATE = f"{_CREATE_APART.rstrip()}{_ATTACH}"

_REPLACE = """
ALTER TABLE windlass.history DETACH PARTITION windlass.{name};
DROP TABLE windlass.{name};
ALTER TABLE windlass.{name}_kept RENAME TO {name};
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
# created it meanwhile (reported in several ways).
_TRY_LATER = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.CheckViolationError,
    asyncpg.QueryCanceledError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.UniqueViolationError,
    asyncpg.InvalidObjectDefinitionError,
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
    try:
        return sum([await _create(connections, day) for day in days if day not in present])
    except asyncpg.InsufficientPrivilegeError as denied:
        _tell_denied(connections, denied)
        return 0


async def existing(connections: Connections) -> list[date]:
    """Return the days that have a partition, oldest first."""
    rows = await connections.fetch(Query("partitions"))
    return [day for row in rows if (day := day_of(row[0])) is not None]


async def drop_before(connections: Connections, day: date) -> Counter[tuple[str, State]]:
    """Drop the partitions of earlier days with their tasks' attempts and keys; count by queue and state.

    A day is kept while its partition is locked. The records that other tasks need are kept: the others go as
    soon as they are at least as many, so that each is copied once, and again only when half of them are gone.
    """
    dropped: Counter[tuple[str, State]] = Counter()
    for old in await existing(connections):
        if old >= day:
            continue
        try:
            dropped += await _delete_joins(connections, old)
            needed, number = await _count_day(connections, old)
            if 2 * needed <= number:
                dropped += await _drop(connections, old)
        except asyncpg.UndefinedTableError:  # another process dropped it meanwhile
            continue
        except asyncpg.InsufficientPrivilegeError as denied:
            _tell_denied(connections, denied)
            break
    return dropped


def _tell_denied(connections: Connections, denied: Exception) -> None:
    """Log, once, that partitions must be left to a keeper that connects as the owner of the tables."""
    if not connections.is_denied_partitions:
        connections.is_denied_partitions = True
        logger.warning(
            "cannot create or drop daily partitions of the history at %s (%s), so ended tasks go to %s, "
            "where pruning is slow, and expired days are kept; run a keeper as the owner of the tables",
            connections.address.display,
            denied,
            REST,
        )


async def _create(connections: Connections, day: date) -> bool:
    try:
        async with connections.one() as connection, connections.transaction(connection):
            await connection.execute(
                f"{_LOCK_TIMEOUT}; {_STATEMENT_TIMEOUT}; {create_statement(day, connections.address.schema)}"
            )
    except _TRY_LATER:
        return False
    return True


async def _delete_joins(connections: Connections, day: date) -> Counter[tuple[str, State]]:
    """Delete cancelled tasks that need others, which otherwise would keep these and be kept with them."""
    lock = compose("lock_day_joins", connections.address.schema, partition=_name(day))

    def delete() -> Script[list[str]]:
        locked = yield Query("lock_day_joins", sql=lock)
        return (yield from delete_ended([row[0] for row in locked]))

    return Counter((queue, State.CANCELLED) for queue in await connections.play(delete))


async def _count_day(connections: Connections, day: date) -> tuple[int, int]:
    """Return how many tasks of a day others need, and how many it has."""
    count = compose("count_day", connections.address.schema, partition=_name(day))
    async with connections.one() as connection, connections.transaction(connection):
        needed, number = await connection.fetchrow(count, timeout=_DELETE_SECONDS)
        return needed, number


async def _drop(connections: Connections, day: date) -> Counter[tuple[str, State]]:
    """Drop a day, or replace it by a table with those of its tasks that others need."""
    schema, name = connections.address.schema, _name(day)

    def on_day(statement: str) -> str:
        return compose(statement, schema, partition=name)

    def filled(sql: str) -> str:
        return in_schema(sql.format(name=name, first=day, last=day + _DAY), schema)

    try:
        async with connections.one() as connection, connections.transaction(connection):
            # Readers go on; replaying one of its tasks waits.
            await connection.execute(
                f"{_LOCK_TIMEOUT}; LOCK TABLE {schema}.{name} IN SHARE ROW EXCLUSIVE MODE"
            )
            await connection.execute(filled(_CREATE_KEPT))
            # What is copied, stays. Who is needed is asked once, as others may come and go meanwhile.
            copied = await connection.fetchval(on_day("copy_day"), timeout=_DELETE_SECONDS)
            deleted = await connection.fetch(on_day("delete_day_details"), timeout=_DELETE_SECONDS)
            # Enqueueing a task that needs one of these waits; then it does not find what was dropped.
            await connection.execute(f"{_STATEMENT_TIMEOUT}; LOCK TABLE {schema}.{name} IN EXCLUSIVE MODE")
            if await connection.fetchval(on_day("needs_more_of_day")):
                raise _NeededMeanwhile
            await connection.execute(
                filled(_REPLACE) + filled(_ATTACH if copied else "DROP TABLE windlass.{name}")
            )
            return Counter({(queue, State(state)): number for queue, state, number in deleted})
    except (*_TRY_LATER, _NeededMeanwhile):
        return Counter()


class _NeededMeanwhile(Exception):
    """A task that needs one of the day was enqueued while the day was about to be dropped."""


def _name(day: date) -> str:
    return f"history_{day:%Y%m%d}"


def day_of(name: str) -> date | None:
    """Return the day of a partition by its name; None for any other table."""
    found = re.fullmatch(r"history_(\d{4})(\d\d)(\d\d)", name)
    return None if found is None else date(*map(int, found.groups()))
