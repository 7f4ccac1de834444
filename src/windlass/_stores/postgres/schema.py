"""Read the schema's version and migrate it, or write the SQL that would.

Each transaction holds an advisory lock on the schema's name, so any number of processes may migrate at
once. Nothing outlives a transaction, so migrations work through any pooler.
"""

import hashlib
from datetime import datetime
from functools import cache

import asyncpg

from ..._store.protocol import Migration
from ...errors import StoreError
from ..migrations import Move, Step, load_steps, next_move, overview, require_current
from ..pool import Connection
from .connection.client import Connections
from .script import Query, Script, value
from .statements import in_schema, statement
from .upkeep import partitions

_STEP_SECONDS = 3600.0
"""Time for one step, and for waiting on another process that migrates."""

# First wait for the advisory lock, for as long as another process migrates. Then fail soon if the tables are
# locked, because every other statement on them queues up behind this one.
_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock({key})"
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = 0"
# Only if there is none: CREATE SCHEMA IF NOT EXISTS needs the privilege even if the schema exists.
_CREATE_SCHEMA = """
DO $$
BEGIN
    IF pg_catalog.to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END
$$"""
_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS windlass.schema_version (
    single integer PRIMARY KEY CHECK (single = 1),
    number integer NOT NULL
)"""
_SET_NUMBER = """
INSERT INTO windlass.schema_version (single, number)
VALUES (1, {number})
ON CONFLICT (single) DO UPDATE SET number = excluded.number"""

# What a step of a script says in place of the questions that `_take_step` asks.
_SCRIPT = """\
-- {number:04d} {name}, {direction} (phase: {phase})
BEGIN ISOLATION LEVEL READ COMMITTED;
{lock};
{timeouts};
DO $$
DECLARE
    at integer := 0;
BEGIN
    IF pg_catalog.to_regclass('windlass.schema_version') IS NOT NULL THEN
        SELECT coalesce(max(number), 0) INTO at FROM windlass.schema_version;
    END IF;
    IF at <> {start} THEN
        RAISE EXCEPTION 'this step migrates schema {start}, but the store has schema %', at;
    END IF;
END
$$;
{statements}
COMMIT;
"""


@cache
def steps() -> tuple[Step, ...]:
    assert __package__
    return load_steps(__package__)


def number() -> Script[int]:
    """Return the schema's version, 0 if there is none. Safe in a caller's transaction: it cannot fail."""
    if not (yield from value("schema_exists")):
        return 0
    return int((yield from value("schema_number")) or 0)


async def ensure(connections: Connections, now: datetime | None = None) -> None:
    """Create the schema if there is none; raise SchemaMismatch if its version is not the current one.

    An old schema is not migrated here: other processes may still run the old code, so that is the operator's
    decision. If the version is current this is a single read.
    """
    at = await _read_version(connections)
    if at == 0:
        await migrate(connections, None, now)
        at = await _read_version(connections)
    require_current(steps(), at, display(connections))


async def migrate(
    connections: Connections, target: int | None, now: datetime | None = None
) -> list[Migration]:
    """Migrate to the target (None: the newest), each step in a transaction; return the steps taken.

    A schema that does not exist is created in one transaction: who starts meanwhile would take half of it for
    an old one. The step that creates the history also creates its partitions around `now` (None: the
    database's clock).
    """
    taken: list[Migration] = []
    connection = await connections.unpooled()
    try:
        while moves := await _take_steps(connection, connections.address.schema, target, now):
            taken += [move.migration for move in moves]
    except asyncpg.InsufficientPrivilegeError as denied:
        raise StoreError(
            f"this user may not create or migrate {display(connections)} ({denied}); run `windlass migrate` "
            f"as the owner of the schema, then give this user its privileges: see docs/least-privilege.md"
        ) from denied
    finally:
        await connection.close()
    return taken


def migration_script(schema: str, start: int, target: int | None = None) -> str:
    """Return the SQL of what `migrate` does from one version to another, for psql and other tools.

    Each step is a transaction that fails, and changes nothing, unless the schema has the version before it.
    """
    parts: list[str] = []
    at = start
    while (move := next_move(steps(), at, target)) is not None:
        parts.append(_script_of(move, schema, at))
        at = move.arrives_at
    return "\n".join(parts)


async def listed(connections: Connections) -> tuple[Migration, ...]:
    return overview(steps(), await _read_version(connections))


def display(connections: Connections) -> str:
    return f"{connections.address.display} (schema {connections.address.schema})"


async def _read_version(connections: Connections) -> int:
    try:
        rows = await connections.fetch(Query("schema_number"))
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return 0
    return int(rows[0][0]) if rows else 0


async def _take_steps(
    connection: Connection, schema: str, target: int | None, now: datetime | None
) -> list[Move]:
    """Take the next step towards the target; if there is no schema so far, all of them."""
    moves: list[Move] = []
    # Read committed, whatever the default: statements must see what was committed before the lock was ours.
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(_LOCK.format(key=lock_key(schema)), timeout=_STEP_SECONDS)
        await connection.execute(_LOCK_TIMEOUT)
        known = await connection.fetchval(statement("schema_exists", schema))
        at = (await connection.fetchval(statement("schema_number", schema)) if known else 0) or 0
        began_at = at
        while (move := next_move(steps(), at, target)) is not None:
            await _take(connection, schema, move, now)
            moves.append(move)
            at = move.arrives_at
            if began_at > 0:
                break
    return moves


async def _take(connection: Connection, schema: str, move: Move, now: datetime | None) -> None:
    for part in _statements(move, schema):
        await connection.execute(part, timeout=_STEP_SECONDS)
    if _is_first(move):
        today = now or await connection.fetchval("SELECT clock_timestamp()")
        for day in partitions.around(today):
            await connection.execute(partitions.create_statement(day, schema))


def _statements(move: Move, schema: str) -> tuple[str, ...]:
    """Return what a step runs in its transaction, besides the partitions of a new store."""
    made = (_CREATE_SCHEMA.format(schema=schema), _CREATE_TABLE) if _is_first(move) else ()
    parts = (*made, move.script, _SET_NUMBER.format(number=move.arrives_at))
    return tuple(in_schema(part, schema) for part in parts)


def _is_first(move: Move) -> bool:
    return move.step.number == move.arrives_at == 1


def _script_of(move: Move, schema: str, start: int) -> str:
    statements = [*_statements(move, schema)]
    if _is_first(move):
        statements.append(partitions.create_script(schema))
    text = _SCRIPT.format(
        number=move.step.number,
        name=move.step.name,
        direction="up" if move.arrives_at > start else "down",
        phase=move.step.phase.value,
        lock=_LOCK.format(key=lock_key(schema)),
        timeouts=_LOCK_TIMEOUT,
        start=start,
        statements="\n".join(f"{part.strip().removesuffix(';')};" for part in statements),
    )
    return in_schema(text, schema)


def lock_key(schema: str) -> int:
    """Return the key of the advisory lock for migrating this schema."""
    digest = hashlib.blake2b(f"windlass schema {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
