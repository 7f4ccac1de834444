"""`windlass check`: findings about schema, tables, server and tasks, each with what to do about it.

Needs no privileges beyond those of a worker; what this user may not see is reported.
"""

import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
from msgspec import Struct

from ...._store.protocol import Durability, Finding, Severity
from ...findings import error, fine, records, warning
from ...migrations import Step, standing
from ...records import MAX_CHECKED, unreadable
from .. import schema
from ..connection.client import Connections
from ..connection.server import Server
from ..rows import Row
from ..script import Query
from . import partitions

MAX_CLOCK_SKEW = timedelta(seconds=2)
MAX_TRANSACTION_SECONDS = 300.0
MIN_DEAD_ROWS = 200_000
"""Ten times autovacuum's threshold; fewer dead rows mean nothing."""

MIN_CONNECTIONS_LEFT = 10
_SCRIPTS = "windlass/_stores/postgres/migrations"
_COUNTED = 10_000


class Probe(Struct, frozen=True):
    """What a check works with: the applied steps of the schema, and a test's clock (None: the database's)."""

    connections: Connections
    steps: Sequence[Step]
    now: datetime | None

    async def rows(self, name: str, *parameters: object) -> Sequence[Row]:
        return await self.connections.fetch(Query(name, parameters))


async def check(connections: Connections, now: datetime | None) -> tuple[Finding, ...]:
    at = await connections.play(schema.number)
    found = [standing(schema.steps(), at, schema.display(connections))]
    if found[0].severity is Severity.ERROR:
        return tuple(found)
    probe = Probe(connections, schema.steps()[:at], now)
    for one in _CHECKS:
        try:
            found += [finding async for finding in one(probe)]
        except asyncpg.InsufficientPrivilegeError as denied:
            message = f"cannot be checked ({denied}); GRANT pg_monitor TO this user"
            found.append(warning(one.__name__.strip("_"), message))
    return tuple(found)


# -- what the migrations create ----------------------------------------------------------------------


class Expected(Struct, frozen=True):
    """What the steps of the schema create: tables, the unlogged ones among them, and indexes."""

    tables: set[str]
    unlogged: set[str]
    indexes: set[str]


def created_by(steps: Sequence[Step]) -> Expected:
    """Parse the migration scripts for what there should be."""
    tables, unlogged, indexes = set[str](), set[str](), set[str]()
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
    return Expected(tables, unlogged & tables, indexes)


async def _indexes(probe: Probe) -> AsyncIterator[Finding]:
    wanted = created_by(probe.steps).indexes
    present = await probe.rows("check_indexes", probe.connections.address.schema)
    missing = sorted(wanted - {name for name, _ in present})
    broken = sorted(name for name, usable in present if not usable)
    if missing:
        yield error(
            "indexes",
            f"missing: {', '.join(missing)}; create them as in the scripts in {_SCRIPTS}, with "
            f"CREATE INDEX CONCURRENTLY if workers are running",
        )
    if broken:
        yield error("indexes", f"invalid: {', '.join(broken)}; rebuild each with REINDEX INDEX CONCURRENTLY")
    if not missing and not broken:
        yield fine("indexes", f"all {len(wanted)} are present and valid")


async def _tables(probe: Probe) -> AsyncIterator[Finding]:
    name, expected = probe.connections.address.schema, created_by(probe.steps)
    rows = await probe.rows("check_tables", name)
    missing = sorted(expected.tables - {row[0] for row in rows})
    if missing:
        yield error("tables", f"missing: {', '.join(missing)}; restore them from a backup")
    unlogged = [table for table, is_unlogged, *_ in rows if is_unlogged and table not in expected.unlogged]
    for table in unlogged:
        yield error(
            "tables",
            f"{name}.{table} is unlogged, so a server crash empties it; run "
            f"ALTER TABLE {name}.{table} SET LOGGED",
        )
    for table, _, unattended, live, dead, last in rows:
        if unattended:
            yield warning(
                "vacuum",
                f"autovacuum is off for {name}.{table}; turn it on with "
                f"ALTER TABLE {name}.{table} RESET (autovacuum_enabled)",
            )
        if dead > max(MIN_DEAD_ROWS, live):
            when = f"was last vacuumed at {last:%Y-%m-%d %H:%M} UTC" if last else "was never vacuumed"
            yield warning(
                "vacuum",
                f"{name}.{table} has {dead:,} dead rows ({live:,} live) and {when}; fix what else this "
                f"report says about vacuum, then run VACUUM {name}.{table}",
            )
    if not missing and not unlogged:
        yield fine("tables", f"all {len(expected.tables)} are present")


async def _size(probe: Probe) -> AsyncIterator[Finding]:
    ((size,),) = await probe.rows("check_size", probe.connections.address.schema)
    yield fine("size", f"tables and indexes have {size / (1024 * 1024):,.1f} MiB")


async def _days(probe: Probe) -> AsyncIterator[Finding]:
    now = probe.now or datetime.now(UTC)
    today = now.astimezone(UTC).date()
    wanted = [today, today + timedelta(days=1)]
    present = await partitions.existing(probe.connections)
    missing = [day for day in wanted if day not in present]
    if missing:
        ((is_owner,),) = await probe.rows("owns_history")
        whose = "" if is_owner else " as the owner of the tables, which this user is not"
        yield warning(
            "history",
            f"no partition for {', '.join(map(str, missing))}: tasks that end then go to {partitions.REST}, "
            f"where pruning is slow; the keeper creates partitions ahead, so make sure that one is running"
            f"{whose}",
        )
    else:
        plural = "s" if len(present) > 1 else ""
        yield fine("history", f"{len(present)} daily partition{plural}, up to {max(present)}")


# -- the server --------------------------------------------------------------------------------------


async def _durability(probe: Probe) -> AsyncIterator[Finding]:
    server = probe.connections.server
    assert server is not None  # Reading the schema's version has connected.
    report = fine if server.promise.durability is Durability.DURABLE else warning
    yield report("durability", server.promise.why)


async def _replication(probe: Probe) -> AsyncIterator[Finding]:
    server = probe.connections.server
    assert server is not None
    rows = await probe.connections.fetch(Query("standbys", (), _STANDBYS))
    if found := standby_finding(server, [row[0] for row in rows]):
        yield found


async def _server(probe: Probe) -> AsyncIterator[Finding]:
    ((encoding, autovacuum, most, used, sees_all),) = await probe.rows("check_server")
    if encoding != "UTF8":
        yield error(
            "encoding",
            f"the database's encoding is {encoding}, which cannot represent every text; "
            f"move to a database created with ENCODING 'UTF8'",
        )
    if not autovacuum:
        yield warning("vacuum", "autovacuum is off, so the tables keep growing; set autovacuum = on")
    usage = f"{used} of {most} connections are in use"
    if most - used >= MIN_CONNECTIONS_LEFT:
        yield fine("connections", usage)
    else:
        advice = "raise max_connections, lower connections= in the URL, or use a pooler"
        yield warning("connections", f"{usage}; {advice}")
    if not sees_all:
        yield fine(
            "rights",
            "this user sees only its own transactions; "
            "GRANT pg_read_all_stats TO it to have other users' checked as well",
        )


# For each standby: sync, quorum, potential or async; null without the privilege to see it.
_STANDBYS = "SELECT sync_state FROM pg_catalog.pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"

# What holds up vacuum, and for how many seconds (a replication slot: transactions). Not in a file under sql/,
# because its words are Postgres's and not those of our vocabulary.
_VACUUM_BLOCKERS = """
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


async def _vacuum(probe: Probe) -> AsyncIterator[Finding]:
    blockers = await probe.connections.fetch(Query("vacuum_blockers", (), _VACUUM_BLOCKERS))
    found = [advice for row in blockers if (advice := _advice(*row)) is not None]
    for advice in found:
        yield warning("vacuum", advice)
    if not found:
        yield fine("vacuum", "nothing blocks it")


def _advice(kind: str, name: str, state: str, seconds: float) -> str | None:
    """Return what to do about one row of _VACUUM_BLOCKERS; None if nothing."""
    if kind == "slot" and state != "active":
        return (
            f"the replication slot {name} is inactive and the server keeps WAL and dead rows for it; "
            f"reconnect its consumer, or run SELECT pg_drop_replication_slot('{name}')"
        )
    if kind == "slot" or seconds < MAX_TRANSACTION_SECONDS:
        return None
    if kind == "prepared":
        return (
            f"{state} prepared the transaction {name} {_span(seconds)} ago and has not finished it; "
            f"run COMMIT PREPARED or ROLLBACK PREPARED"
        )
    return (
        f"process {name} has had a transaction open for {_span(seconds)} ({state}), so vacuum cannot remove "
        f"rows deleted since; end it, with pg_terminate_backend if necessary, and set "
        f"idle_in_transaction_session_timeout"
    )


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


async def _clock(probe: Probe) -> AsyncIterator[Finding]:
    if probe.now is not None:
        return
    before = datetime.now(UTC)
    ((theirs,),) = await probe.rows("now", None)
    after = datetime.now(UTC)
    skew = max(before - theirs, theirs - after)
    if skew > MAX_CLOCK_SKEW:
        yield warning(
            "clock",
            f"this machine's clock and the server's are {_span(skew.total_seconds())} apart, so run_at "
            f"values computed here are off by as much; synchronise both with a time server",
        )
    else:
        yield fine("clock", f"{theirs:%Y-%m-%d %H:%M:%S} UTC, in step with this machine")


async def _pooler(probe: Probe) -> AsyncIterator[Finding]:
    address, server = probe.connections.address, probe.connections.server
    if server is None or not server.pooled:
        return
    if address.listen is None:
        yield warning(
            "pooler",
            "there is a pooler in transaction mode in between, where LISTEN does not work, so workers "
            "poll; add listen=postgresql://... to the URL, a connection that bypasses the pooler",
        )
    else:
        yield fine("pooler", "present; wake-ups bypass it")


# -- tasks -------------------------------------------------------------------------------------------

# For each column of check_tasks.sql: what is wrong with one or with several, and what to do.
_SESSION, _TASK = ("worker session has", "worker sessions have"), ("task is", "tasks are")
_TASK_PROBLEMS = (
    (_SESSION, "expired; the keeper rescues their tasks, so make sure one runs"),
    (_TASK, "running without a session, which is a bug in windlass; please report it"),
    (_TASK, "waiting for no other task, which is a bug in windlass; cancel and replay"),
    (
        ("ended task is", "ended tasks are"),
        f"in {partitions.REST} for want of a daily partition; make sure a keeper runs",
    ),
)


async def _tasks(probe: Probe) -> AsyncIterator[Finding]:
    (numbers,) = await probe.rows("check_tasks", probe.now, _COUNTED)
    for number, (subject, problem) in zip(numbers, _TASK_PROBLEMS, strict=True):
        if number:
            least = "at least " if number == _COUNTED else ""
            yield warning("tasks", f"{least}{number:,} {subject[number > 1]} {problem}")
    if not any(numbers):
        yield fine("tasks", "no expired sessions or orphaned tasks")


async def _records(probe: Probe) -> AsyncIterator[Finding]:
    yield records(unreadable(await probe.rows("bodies", MAX_CHECKED)))


_CHECKS = (
    _indexes,
    _tables,
    _size,
    _days,
    _durability,
    _replication,
    _server,
    _vacuum,
    _clock,
    _pooler,
    _tasks,
    _records,
)


# -- standbys ------------------------------------------------------------------------------------------


SUBJECT = "replication"
_CONFIRMING = ("sync", "quorum")


def standby_finding(server: Server, states: Sequence[str | None]) -> Finding | None:
    """Return what to report, given the `sync_state` of each connected standby; None without replication."""
    named, number = server.has_synchronous_standbys, len(states)
    if not states and not named and not server.several_hosts:
        return None
    if states and None in states:
        return fine(
            SUBJECT,
            f"{_standbys(number)} connected; this user cannot see whether synchronous or not: "
            f"GRANT pg_monitor TO it",
        )
    confirming = sum(state in _CONFIRMING for state in states)
    if named and not confirming:
        return error(
            SUBJECT,
            "no synchronous standby is connected, so commits wait until one is: start one, or remove it from "
            "synchronous_standby_names, which gives up what a failover would need",
        )
    if not states:
        return warning(SUBJECT, "the URL names several hosts, but no standby is connected to the primary")
    if not named:
        return warning(
            SUBJECT,
            f"{_standbys(number)} connected, none of them synchronous, so a failover can lose the last "
            f"acknowledged commits; set synchronous_standby_names on every server",
        )
    if server.commit_level in ("off", "local", "remote_write"):
        return warning(
            SUBJECT,
            f"synchronous_commit is {server.commit_level} for this user, so commits do not wait until a "
            f"standby has them on disk; set synchronous_commit = on",
        )
    return fine(SUBJECT, f"{_standbys(number)} connected, {confirming} of them synchronous")


def _standbys(number: int) -> str:
    return "1 standby is" if number == 1 else f"{number} standbys are"
