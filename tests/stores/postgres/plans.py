"""Plans of statements, as the store has them made, and what may be wrong with one.

Plans are asked for as they are used: generic, of prepared statements, on connections set up as the store's.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from tests.examples import sample
from tests.servers.postgres import Postgres
from windlass._stores.postgres import schema
from windlass._stores.postgres.connection.address import parse
from windlass._stores.postgres.connection.client import Connections
from windlass._stores.postgres.statements import in_schema, statement
from windlass._stores.postgres.upkeep import partitions

from .conftest import new_schema

Node = dict[str, Any]

ON_EACH_SERVER = sample(["postgres_newest"], ["postgres15"])
SERVERS = tuple(one if isinstance(one, str) else one.values[0] for one in ON_EACH_SERVER)
NOW = datetime.now(UTC)  # once, as midnight may pass during a run
YESTERDAY = NOW.date() - timedelta(days=1)
GUARDED = re.compile(r"task|history(_\w+)?|idempotency|dependency|attempt|permit|bucket")

# -- what is in the tables ---------------------------------------------------------------------------

USUAL = {"ready": 60_000, "scheduled": 20_000, "running": 500, "dead": 1_000, "waiting": 200}
OTHERWISE = {"running": 40_000, "dead": 40_000}  # what statistics may remember
ENDED = 50_000
BESIDE = 5_000  # keys, dependencies, attempts
DAYS = 4
TINY = 0.0005

TASKS = """
INSERT INTO windlass.task (
    id, root, run_at, created_at, finished_at, boost, fence, claim_number, priority, attempt, max_attempts,
    state, type, queue, tenant, payload, session, worker, enqueued_by, fingerprint, idempotency_key,
    rank, failure
)
SELECT
    u.id, u.id, now() + CASE u.state WHEN 'scheduled' THEN 1 ELSE -1 END * interval '1 s' * n, now(),
    CASE WHEN u.state = 'dead' THEN now() - interval '1 min' * n END, 0, 1, 1, 0, 1, 5,
    u.state, 't', $4 || n % 3, '', '{}', CASE WHEN u.state = 'running' THEN 's' || n % 7 END, 'w', '',
    CASE WHEN n % 50 = 0 THEN 'f' || u.id END, CASE WHEN n % 50 = 1 THEN 'k' || n END, n,
    CASE WHEN u.state = 'dead' THEN 'f' || n % 20 END
FROM generate_series(1, $1::integer) AS n
CROSS JOIN LATERAL (
    SELECT
        ('019a0000-' || $3::text || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,
        $2::text AS state
) AS u
"""
HISTORY = """
INSERT INTO windlass.history (
    id, root, run_at, created_at, claimed_at, finished_at, boost, fence, duration, priority, attempt,
    max_attempts, cancel_requested, state, type, queue, tenant, payload, idempotency_key, enqueued_by
)
SELECT
    u.id, u.id, now(), now(), now(), now() - interval '1 day' * (n % $2::integer), 0, 1 + n % 10 / 9, 0, 0, 1,
    5, false, CASE WHEN n % 50 = 0 THEN 'cancelled' ELSE 'completed' END, 't', 'q' || n % 3, '', '{}',
    CASE WHEN n % 50 = 1 THEN 'h' || n END, ''
FROM generate_series(1, $1::integer) AS n
CROSS JOIN LATERAL (
    SELECT ('019a0000-ffff-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id
) AS u
"""
KEYS = """
INSERT INTO windlass.idempotency (tenant, key, task_id, digest, until)
SELECT '', 'k' || n, gen_random_uuid(), '', CASE WHEN n % 2 = 0 THEN now() + interval '1 s' * n END
FROM generate_series(1, $1::integer) AS n
"""
DEPENDENCIES = """
INSERT INTO windlass.dependency (predecessor, successor)
SELECT gen_random_uuid(), gen_random_uuid() FROM generate_series(1, $1::integer)
"""
ATTEMPTS = """
INSERT INTO windlass.attempt (task_id, fence, number, claimed_at, finished_at, duration, outcome)
SELECT gen_random_uuid(), 1, 1, now(), now(), 0, 'x' FROM generate_series(1, $1::integer)
"""
SESSIONS = """
INSERT INTO windlass.session SELECT 's' || n, 'w', '{}', now(), now(), now() + interval '1 hour'
FROM generate_series(0, 4) AS n
"""
TABLES = ("task", "history", "idempotency", "dependency", "attempt", "session", "permit", "bucket")


class Tables:
    """The tables of one schema, on a connection to fill them with."""

    def __init__(self, connection: psycopg.Connection, name: str) -> None:
        self._cursor = psycopg.RawCursor(connection)
        self._schema = name

    def fill(self, tasks: dict[str, int], queue: str = "q", size: float = 1.0) -> None:
        for place, (state, number) in enumerate(tasks.items()):
            self.run(TASKS, max(1, round(number * size)), state, f"{place:04x}", queue)
        self.run(HISTORY, max(1, round(ENDED * size)), DAYS)
        for sql in (KEYS, DEPENDENCIES, ATTEMPTS):
            self.run(sql, max(1, round(BESIDE * size)))
        self.run(SESSIONS)

    def empty(self) -> None:
        """Delete everything; what statistics say stays, and so do the dead rows."""
        for table in TABLES:
            self.run(f"DELETE FROM windlass.{table}")

    def analyse(self) -> None:
        for table in TABLES:
            self.run(f"ANALYZE windlass.{table}")

    def leave_alone(self) -> None:
        """Nobody analyses them but us."""
        sql = "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r'"
        for (table,) in self._cursor.execute(sql, [self._schema]).fetchall():
            self.run(f"ALTER TABLE windlass.{table} SET (autovacuum_enabled = false)")

    def run(self, sql: str, *parameters: Any) -> None:
        self._cursor.execute(in_schema(sql, self._schema).encode(), parameters or None)


class Stores:
    """Filled stores, each filled when first asked for."""

    def __init__(
        self, contents: Mapping[str, Callable[[Tables], None]], servers: Mapping[str, Postgres]
    ) -> None:
        self._contents = contents
        self._servers = servers
        self._made: dict[tuple[str, str], str] = {}
        self._opened: list[Connections] = []

    async def on(self, server: str, contents: str) -> Connections:
        """Connections as the store has them, to tables with these contents."""
        if (server, contents) not in self._made:
            self._made[server, contents] = await _make(self._servers[server], self._contents[contents])
        self._opened.append(Connections(parse(self._made[server, contents])))
        return self._opened[-1]

    async def close(self) -> None:
        """Close the connections; the tables stay."""
        while self._opened:
            await self._opened.pop().close()


async def _make(server: Postgres, fill: Callable[[Tables], None]) -> str:
    url = new_schema(server.url)
    connections = Connections(parse(url))
    await schema.ensure(connections, NOW)
    days = [YESTERDAY - timedelta(days=n) for n in range(1, DAYS + 1)]
    await partitions.ensure_days(connections, days)
    await connections.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        tables = Tables(connection, parse(url).schema)
        tables.leave_alone()
        fill(tables)
    return url


# -- statements, and what they may go by -------------------------------------------------------------


class Statement(NamedTuple):
    """What is prepared, the indexes that may lead it, and arguments if the plan shows only when it is run.

    `walks` are indexes that are followed from one end, to stop at the first that will do; `whole` are those
    that are gone through to the other end, and meant to be.
    """

    sql: str
    by: str
    arguments: str = ""
    before: str = ""
    walks: str = ""
    whole: str = ""


def text(name: str, **slots: str) -> str:
    return statement(name, "windlass", **slots)


# -- plans -------------------------------------------------------------------------------------------


async def explained(connections: Connections, one: Statement, options: str = "") -> Node:
    """The plan of a prepared statement; whatever it does is undone."""
    async with connections.one() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute(
                in_schema(f"{one.before}; PREPARE p AS {one.sql}", connections.address.schema)
            )
            number = await connection.fetchval(
                "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'p'"
            )
            arguments = one.arguments or ", ".join(["NULL"] * number)
            given = f"({arguments})" if number else ""
            run = "ANALYZE, TIMING OFF, " if one.arguments else ""
            rows = await connection.fetch(f"EXPLAIN ({run}{options}FORMAT JSON) EXECUTE p{given}")
            await connection.execute("DEALLOCATE p")
        finally:
            await transaction.rollback()
    plan: Node = json.loads(rows[0][0])[0]["Plan"]
    return plan


def below(node: Node) -> Iterator[Node]:
    """A node and everything beneath it."""
    yield node
    for child in node.get("Plans", ()):
        yield from below(child)


class Scan(NamedTuple):
    """A scan of a guarded table, and what is above it.

    `bounded`: something takes no more than so many rows. `walked`: it takes them straight from here.
    """

    node: Node
    bounded: bool
    walked: bool

    @property
    def led_by(self) -> str:
        """The index that leads it; of a partition's, the one it is part of. A row's place counts as one."""
        if "TID Cond" in self.node:
            return "ctid"
        (named,) = [node["Index Name"] for node in self._parts if "Index Name" in node] or [""]
        part = re.fullmatch(r"history_(?:\d{8}|rest)_(\w+)_idx", named)
        return PARTS[part[1]] if part else named

    @property
    def condition(self) -> str:
        """How it is led."""
        led = ("Index Cond", "TID Cond")
        return " ".join(node[name] for node in self._parts for name in led if name in node)

    @property
    def is_few(self) -> bool:
        """Whether it ends somewhere: what is looked up by equality is as much as was asked for."""
        return self.bounded or (" = " in self.condition and self.led_by not in BACKLOGS)

    @property
    def _parts(self) -> list[Node]:
        """The node, and for a bitmap the one that makes it."""
        return [self.node, *(node for node in self.node.get("Plans", ()) if "Bitmap" in node["Node Type"])]


BACKLOGS = {"task_ready", "task_lane", "task_high", "task_low"}  # What equals a queue or a lane may be many.
PARTS = {
    "id": "history_id",
    "finished_at": "history_finished",
    "idempotency_key": "history_key",
    "kept_id": "kept_id",  # of the table that is to replace a day
}
PASSING = {"LockRows", "Result", "Subquery Scan"}


def scans(node: Node, *, bounded: bool = False, walked: bool = False) -> Iterator[Scan]:
    if GUARDED.fullmatch(node.get("Relation Name", "")) and node["Node Type"].endswith("Scan"):
        yield Scan(node, bounded, walked)
    limits = node["Node Type"] == "Limit"
    walked = limits or (walked and node["Node Type"] in PASSING)
    for child in node.get("Plans", ()):
        yield from scans(child, bounded=bounded or limits, walked=walked)


def complaints(plan: Node, one: Statement) -> Iterator[str]:
    """What is wrong with a plan."""
    for scan in scans(plan):
        allowed = one.whole.split() + (one.walks.split() if scan.walked else [])
        if scan.led_by not in one.by.split():
            yield f"{scan.node['Relation Name']} is read by {scan.led_by or 'no index'}"
        elif not scan.condition and scan.led_by not in allowed:
            yield f"all of {scan.led_by} is gone through"
    for node in below(plan):
        if "Sort" in node["Node Type"] and any(not scan.is_few for scan in scans(node)):
            yield f"a sort by {', '.join(node['Sort Key'])} of what nothing bounds"


async def wrong(connections: Connections, statements: dict[str, Statement]) -> dict[str, list[str]]:
    """The complaints about each that there are any about."""
    found = {
        name: list(complaints(await explained(connections, one), one)) for name, one in statements.items()
    }
    return {name: complained for name, complained in found.items() if complained}


def literal(value: Any) -> str:
    """A parameter as it is written in a statement."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        inside = ",".join(f'"{one}"' for one in value)
        return f"'{{{inside}}}'"
    return f"'{value}'"


async def touched(connections: Connections, sql: str, *parameters: Any) -> tuple[int, Node]:
    """How many pages a statement touches with these parameters, and its plan."""
    one = Statement(sql, "", arguments=", ".join(map(literal, parameters)))
    plan = await explained(connections, one, "BUFFERS, ")
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan


def claimed(plan: Node) -> int:
    """How many tasks a run of settle.sql claimed."""
    (node,) = [node for node in below(plan) if node.get("Subplan Name") == "CTE claimed"]
    return int(node["Actual Rows"])
