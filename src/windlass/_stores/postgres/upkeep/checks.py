"""The health report of the database: what a person should know, and what to do about it.

No rights are needed beyond those for working; what this user may not see is said.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
from msgspec import Struct

from ...._store.protocol import Durability, Finding, Severity
from ...migrations import Step, standing
from .. import schema
from ..connection.client import Connections
from ..connection.durability import promise
from ..script import Ask, Row
from . import partitions

MAX_CLOCK_SKEW = timedelta(seconds=2)
MAX_TRANSACTION_SECONDS = 300.0
MIN_DEAD_ROWS = 200_000
"""Ten times what autovacuum waits for: below, dead rows are no sign of anything."""

MIN_CONNECTIONS_LEFT = 10
_SCRIPTS = "windlass/_stores/postgres/migrations"
_COUNTED = 10_000


class Look(Struct, frozen=True):
    """What a check has to go by: the steps that were taken, and a test's clock (None: the database's)."""

    connections: Connections
    steps: Sequence[Step]
    now: datetime | None

    async def rows(self, name: str, *parameters: object) -> Sequence[Row]:
        """The answer to one of the statements."""
        return await self.connections.fetch(Ask(name, parameters))


Check = Callable[[Look], AsyncIterator[Finding]]


async def check(connections: Connections, now: datetime | None) -> tuple[Finding, ...]:
    """Every finding, the good ones included."""
    at = await connections.play(schema.number)
    found = [standing(schema.steps(), at, schema.place(connections))]
    if found[0].severity is Severity.ERROR:
        return tuple(found)
    look = Look(connections, schema.steps()[:at], now)
    for one in _CHECKS:
        try:
            found += [finding async for finding in one(look)]
        except asyncpg.InsufficientPrivilegeError as error:
            found.append(
                _warning(
                    one.__name__.strip("_"), f"cannot be looked at ({error}): GRANT pg_monitor TO this user"
                )
            )
    return tuple(found)


# -- what the migrations make ------------------------------------------------------------------------


class Made(Struct, frozen=True):
    """What the steps of the schema have made: tables, those of them that are not logged, and indexes."""

    tables: frozenset[str]
    unlogged: frozenset[str]
    indexes: frozenset[str]


def made_by(steps: Sequence[Step]) -> Made:
    """Read off the scripts what there should be."""
    tables, unlogged, indexes = set(), set(), set()
    for part in (part for step in steps for part in re.sub(r"--[^\n]*", "", step.up).split(";")):
        if found := re.search(r"CREATE (UNLOGGED )?TABLE windlass\.(\w+)", part):
            tables.add(found[2])
            if found[1]:
                unlogged.add(found[2])
            if "PRIMARY KEY" in part:
                indexes.add(f"{found[2]}_pkey")
        elif found := re.search(r"CREATE (?:UNIQUE )?INDEX (\w+)", part):
            indexes.add(found[1])
        elif found := re.search(r"DROP (TABLE|INDEX) windlass\.(\w+)", part):
            tables.discard(found[2])
            indexes -= {found[2], f"{found[2]}_pkey"}
    return Made(frozenset(tables), frozenset(unlogged & tables), frozenset(indexes))


async def _indexes(look: Look) -> AsyncIterator[Finding]:
    wanted = made_by(look.steps).indexes
    there = dict(await _pairs(look, "check_indexes", look.connections.address.schema))
    missing = sorted(wanted - set(there))
    broken = sorted(name for name, usable in there.items() if not usable)
    if missing:
        yield _error(
            "indexes",
            f"missing: {', '.join(missing)}; make them again as the scripts in {_SCRIPTS} say, with "
            f"CREATE INDEX CONCURRENTLY while tasks go on",
        )
    if broken:
        yield _error("indexes", f"not usable: {', '.join(broken)}; mend each with REINDEX INDEX CONCURRENTLY")
    if not missing and not broken:
        yield _fine("indexes", f"all {len(wanted)} are there")


async def _tables(look: Look) -> AsyncIterator[Finding]:
    name, made = look.connections.address.schema, made_by(look.steps)
    rows = await look.rows("check_tables", name)
    missing = sorted(made.tables - {row[0] for row in rows})
    if missing:
        yield _error("tables", f"missing: {', '.join(missing)}; restore a backup")
    unlogged = [table for table, is_unlogged, *_ in rows if is_unlogged and table not in made.unlogged]
    for table in unlogged:
        yield _error(
            "tables",
            f"{name}.{table} is not logged: a crash of the server empties it; "
            f"ALTER TABLE {name}.{table} SET LOGGED",
        )
    for table, _, unattended, live, dead, last in rows:
        if unattended:
            yield _warning(
                "vacuum",
                f"autovacuum is off for {name}.{table}: switch it on with "
                f"ALTER TABLE {name}.{table} RESET (autovacuum_enabled)",
            )
        if dead > max(MIN_DEAD_ROWS, live):
            when = f"was last vacuumed at {last:%Y-%m-%d %H:%M} UTC" if last else "was never vacuumed"
            yield _warning(
                "vacuum",
                f"{name}.{table} has {dead:,} dead rows beside {live:,} live ones and {when}: see what else "
                f"this report says about vacuum; then VACUUM {name}.{table}",
            )
    if not missing and not unlogged:
        yield _fine("tables", f"all {len(made.tables)} are there")


async def _pairs(look: Look, name: str, *parameters: object) -> list[tuple[str, bool]]:
    return [(row[0], row[1]) for row in await look.rows(name, *parameters)]


async def _days(look: Look) -> AsyncIterator[Finding]:
    now = look.now or datetime.now(UTC)
    today = now.astimezone(UTC).date()
    wanted = [today, today + timedelta(days=1)]
    there = await partitions.existing(look.connections)
    missing = [day for day in wanted if day not in there]
    if missing:
        yield _warning(
            "history",
            f"no partition for {', '.join(map(str, missing))}: tasks that end then are kept in "
            f"{partitions.REST}, where they are pruned one by one; the keeper makes days ahead, so see that "
            f"one runs",
        )
    else:
        yield _fine("history", f"{len(there)} days, to {max(there)}")


# -- the server --------------------------------------------------------------------------------------


async def _durability(look: Look) -> AsyncIterator[Finding]:
    server = look.connections.server
    assert server is not None  # It has been asked.
    said = promise(server)
    fine = said.durability is Durability.DURABLE
    yield _fine("durability", said.why) if fine else _warning("durability", said.why)


async def _server(look: Look) -> AsyncIterator[Finding]:
    ((encoding, autovacuum, most, used, sees_all),) = await look.rows("check_server")
    if encoding != "UTF8":
        yield _error(
            "encoding",
            f"the database is in {encoding}, which cannot hold every text: "
            f"move to one made with ENCODING 'UTF8'",
        )
    if not autovacuum:
        yield _warning("vacuum", "autovacuum is off: the tables grow without end; switch it on")
    left = most - used
    told = f"{used} of {most} connections are in use"
    yield (
        _warning(
            "connections", f"{told}: raise max_connections, lower connections= in the URL, or use a pooler"
        )
        if left < MIN_CONNECTIONS_LEFT
        else _fine("connections", told)
    )
    if not sees_all:
        yield _fine(
            "rights",
            "this user sees only its own transactions: "
            "GRANT pg_read_all_stats to have others' looked at as well",
        )


# What keeps vacuum from clearing up, and for how many seconds it has (a slot: transactions), as far as the
# server tells. Here and not in a file of its own, for half of its words are Postgres's.
_PINNING = """
SELECT
    'transaction' AS kind,
    a.pid::text || coalesce(' (' || nullif(a.application_name, '') || ')', '') AS name,
    coalesce(a.state, '') AS state,
    extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS seconds
FROM pg_catalog.pg_stat_activity AS a
WHERE
    a.datname = current_database() AND a.pid <> pg_backend_pid()
    AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.xact_start IS NOT NULL
    AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
UNION ALL
SELECT 'prepared', p.gid, p.owner::text, extract(epoch FROM clock_timestamp() - p.prepared)::double precision
FROM pg_catalog.pg_prepared_xacts AS p
WHERE p.database = current_database()
UNION ALL
SELECT
    'slot', s.slot_name::text, CASE WHEN s.active THEN 'active' ELSE 'inactive' END,
    age(s.xmin)::double precision
FROM pg_catalog.pg_replication_slots AS s
WHERE s.xmin IS NOT NULL OR NOT s.active
"""


async def _pins(look: Look) -> AsyncIterator[Finding]:
    troubled = False
    for kind, name, state, number in await look.connections.fetch(Ask("pins", (), _PINNING)):
        advice = _PINS[kind](name, state, number or 0.0)
        if advice:
            troubled = True
            yield _warning("vacuum", advice)
    if not troubled:
        yield _fine("vacuum", "nothing holds it up")


def _transaction(name: str, state: str, seconds: float) -> str:
    if seconds < MAX_TRANSACTION_SECONDS:
        return ""
    return (
        f"process {name} has had a transaction open for {_span(seconds)} ({state}): nothing deleted since "
        f"can be cleared away; end it, with pg_terminate_backend if need be, and set "
        f"idle_in_transaction_session_timeout"
    )


def _prepared(name: str, owner: str, seconds: float) -> str:
    if seconds < MAX_TRANSACTION_SECONDS:
        return ""
    return (
        f"{owner} prepared the transaction {name} {_span(seconds)} ago and left it: "
        f"COMMIT PREPARED or ROLLBACK PREPARED"
    )


def _slot(name: str, state: str, _age: float) -> str:
    if state == "active":
        return ""
    return (
        f"nobody reads the replication slot {name}, and the server keeps everything for it: bring its reader "
        f"back, or SELECT pg_drop_replication_slot('{name}')"
    )


_PINS: dict[str, Callable[[str, str, float], str]] = {
    "transaction": _transaction,
    "prepared": _prepared,
    "slot": _slot,
}


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


async def _clock(look: Look) -> AsyncIterator[Finding]:
    if look.now is not None:
        return
    before = datetime.now(UTC)
    ((theirs,),) = await look.rows("now", None)
    after = datetime.now(UTC)
    skew = max(before - theirs, theirs - after)
    if skew > MAX_CLOCK_SKEW:
        yield _warning(
            "clock",
            f"this machine's clock and the server's are {_span(skew.total_seconds())} apart: instants that "
            f"programs here give (run_at) are off by as much; see that both follow a time server",
        )
    else:
        yield _fine("clock", f"{theirs:%Y-%m-%d %H:%M:%S} UTC, as here")


async def _pooler(look: Look) -> AsyncIterator[Finding]:
    address, server = look.connections.address, look.connections.server
    if server is None or not server.pooled:
        return
    if address.listen is None:
        yield _warning(
            "pooler",
            "a pooler hands connections round, and through it nobody can be woken: workers look for tasks by "
            "the clock; add listen=postgresql://... to the URL, past the pooler",
        )
    else:
        yield _fine("pooler", "there is one; wake-ups go past it")


# -- tasks -------------------------------------------------------------------------------------------

_LOST = (
    "worker sessions have expired; the keeper rescues their tasks, so see that one runs",
    "tasks run for nobody, which should never be: report it",
    "tasks wait for nothing, which should never be: cancel and replay them",
    f"ended tasks lie in {partitions.REST}, for there was no partition for the day: see that a keeper runs",
)


async def _tasks(look: Look) -> AsyncIterator[Finding]:
    (numbers,) = await look.rows("check_tasks", look.now, _COUNTED)
    troubled = [
        _warning("tasks", f"{number}{' or more' if number == _COUNTED else ''} {advice}")
        for number, advice in zip(numbers, _LOST, strict=True)
        if number
    ]
    for finding in troubled or [_fine("tasks", "nothing lies about")]:
        yield finding


_CHECKS: tuple[Check, ...] = (
    _indexes,
    _tables,
    _days,
    _durability,
    _server,
    _pins,
    _clock,
    _pooler,
    _tasks,
)


def _fine(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.OK, subject=subject, message=message)


def _warning(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, subject=subject, message=message)


def _error(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.ERROR, subject=subject, message=message)
