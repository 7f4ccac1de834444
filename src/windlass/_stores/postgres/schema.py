"""Read the schema's version and migrate it.

Each step's transaction holds an advisory lock on the schema's name, so any number of processes may migrate at
once. Nothing outlives a transaction, so migrations work through any pooler.
"""

import hashlib
from datetime import datetime
from functools import cache

import asyncpg

from ..._store.protocol import Migration
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
_HAS_SCHEMA = "SELECT pg_catalog.to_regnamespace('{schema}') IS NOT NULL"
_CREATE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS {schema}"
_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS windlass.schema_version (
    single integer PRIMARY KEY CHECK (single = 1),
    number integer NOT NULL
)
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

    The step that creates the history also creates its partitions around `now` (None: the database's clock).
    """
    taken: list[Migration] = []
    connection = await connections.unpooled()
    try:
        while (move := await _take_step(connection, connections.address.schema, target, now)) is not None:
            taken.append(move.migration)
    finally:
        await connection.close()
    return taken


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


async def _take_step(
    connection: Connection, schema: str, target: int | None, now: datetime | None
) -> Move | None:
    # Read committed, whatever the default: statements must see what was committed before the lock was ours.
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(_LOCK.format(key=lock_key(schema)), timeout=_STEP_SECONDS)
        await connection.execute(_LOCK_TIMEOUT)
        known = await connection.fetchval(statement("schema_exists", schema))
        at = await connection.fetchval(statement("schema_number", schema)) if known else 0
        move = next_move(steps(), at or 0, target)
        if move is None:
            return None
        # Only if there is none: CREATE SCHEMA IF NOT EXISTS needs the privilege even if the schema exists.
        if not await connection.fetchval(_HAS_SCHEMA.format(schema=schema)):
            await connection.execute(_CREATE_SCHEMA.format(schema=schema))
        await connection.execute(in_schema(move.script, schema), timeout=_STEP_SECONDS)
        await connection.execute(in_schema(_CREATE_TABLE, schema))
        await connection.execute(statement("put_schema_number", schema), move.arrives_at)
        if move.step.number == move.arrives_at == 1:
            today = now or await connection.fetchval("SELECT clock_timestamp()")
            for day in partitions.around(today):
                await connection.execute(partitions.create_statement(day, schema))
    return move


def lock_key(schema: str) -> int:
    """Return the key of the advisory lock for migrating this schema."""
    digest = hashlib.blake2b(f"windlass schema {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
