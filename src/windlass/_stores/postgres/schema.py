"""The schema's number in the database, and the moves from one to the next.

Whoever migrates holds an advisory lock of the schema's name to the end of each step's transaction, so that
any number of processes may start at once. Nothing outlives a transaction: it works through any pooler.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import cache

import asyncpg

from ..._store.protocol import Migration
from ..migrations import Move, Step, load_steps, next_move, overview, require_current
from .connection.client import Connections
from .connection.pool import Connection
from .script import Ask, Row, Script, play, value
from .statements import in_schema, statement
from .upkeep import partitions

_PATIENCE_SECONDS = 3600.0
"""How long one step may take, and how long to wait for another who migrates."""

# The lock first: while somebody else migrates there is nothing to hurry for. After that a step that cannot
# have its tables within some seconds gives way: everybody who wants them as well queues up behind it.
_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock({key})"
_HURRY = "SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = 0"
_HAS_SCHEMA = "SELECT pg_catalog.to_regnamespace('{schema}') IS NOT NULL"
_MAKE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS {schema}"
_MAKE_TABLE = """
CREATE TABLE IF NOT EXISTS windlass.schema_version (
    single integer PRIMARY KEY CHECK (single = 1),
    number integer NOT NULL
)
"""


@cache
def steps() -> tuple[Step, ...]:
    """The steps that this code knows."""
    assert __package__
    return load_steps(__package__)


def number() -> Script[int]:
    """Where the schema stands; 0 where there is none. Harmless in anybody's transaction."""
    if not (yield from value("schema_exists")):
        return 0
    return int((yield from value("schema_number")) or 0)


async def ensure(connections: Connections, now: datetime | None = None) -> None:
    """Make the schema where there is none; raise SchemaMismatch where there is another one.

    An old one is not brought forward by whoever happens to open it first: other processes may still run
    the old code, and going forward is a person's decision. Where all is well this is one read.
    """
    at = await _glance(connections)
    if at == 0:
        await migrate(connections, None, now)
        at = await _glance(connections)
    require_current(steps(), at, place(connections))


async def migrate(
    connections: Connections, target: int | None, now: datetime | None = None
) -> list[Migration]:
    """Go up or down to the target, each step in a transaction; answers with the steps taken here.

    The step that makes the history makes its days around now as well: the database's, unless a test has
    its own.
    """
    taken: list[Migration] = []
    connection = await connections.alone()
    try:
        while (move := await _take_step(connection, connections.address.schema, target, now)) is not None:
            taken.append(move.migration)
    finally:
        await connection.close()
    return taken


async def listed(connections: Connections) -> tuple[Migration, ...]:
    """Every step that this code or the database knows."""
    return overview(steps(), await _glance(connections))


def place(connections: Connections) -> str:
    """The schema as it is called in messages."""
    return f"{connections.address.place} (schema {connections.address.schema})"


async def _glance(connections: Connections) -> int:
    """The number, in one read."""
    try:
        rows = await connections.fetch(Ask("schema_number"))
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return 0
    return int(rows[0][0]) if rows else 0


async def _take_step(
    connection: Connection, schema: str, target: int | None, now: datetime | None
) -> Move | None:
    # Read committed, whatever the default: each statement must see what others did before we had the lock.
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(_LOCK.format(key=lock_key(schema)), timeout=_PATIENCE_SECONDS)
        await connection.execute(_HURRY)
        move = next_move(steps(), await _number(connection, schema), target)
        if move is None:
            return None
        # Only where there is none: making one takes rights on the database, also if it turns out to be there.
        if not await connection.fetchval(_HAS_SCHEMA.format(schema=schema)):
            await connection.execute(_MAKE_SCHEMA.format(schema=schema))
        await connection.execute(in_schema(move.script, schema), timeout=_PATIENCE_SECONDS)
        await connection.execute(in_schema(_MAKE_TABLE, schema))
        await connection.execute(statement("schema_keep", schema).replace("$1", str(move.arrives_at)))
        if move.step.number == move.arrives_at == 1:
            at = now or await connection.fetchval("SELECT clock_timestamp()")
            for day in partitions.around(at):
                await connection.execute(partitions.making(day, schema))
    return move


async def _number(connection: Connection, schema: str) -> int:
    async def fetch(ask: Ask) -> Sequence[Row]:
        rows: Sequence[Row] = await connection.fetch(statement(ask.name, schema), *ask.parameters)
        return rows

    return await play(number(), fetch)


def lock_key(schema: str) -> int:
    """The key of the lock that whoever changes this schema's tables holds."""
    digest = hashlib.blake2b(f"windlass schema {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
