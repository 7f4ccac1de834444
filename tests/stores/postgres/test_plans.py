"""No statement walks through the backlog or sorts it, whatever is in the tables and whatever statistics say.

Plans are asked for as they are used: generic, of prepared statements, on connections set up as the store's.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.servers.postgres import Postgres
from windlass._model.lease import Claim
from windlass._stores.postgres import partitions, schema
from windlass._stores.postgres.address import parse
from windlass._stores.postgres.arms import settle_with
from windlass._stores.postgres.connections import Connections
from windlass._stores.postgres.enqueueing import Terms
from windlass._stores.postgres.leases import Arm, exchange
from windlass._stores.postgres.statements import statement, within

from .conftest import new_schema

Node = dict[str, Any]
Filled = Callable[[str, str], Awaitable[Connections]]

YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
SINCE = f"{YESTERDAY} 00:00:00+00"
GUARDED = re.compile(r"task|history(_\w+)?|idempotency|dependency|attempt")

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
    rank
)
SELECT
    u.id, u.id, now() + CASE u.state WHEN 'scheduled' THEN 1 ELSE -1 END * interval '1 s' * n, now(),
    CASE WHEN u.state = 'dead' THEN now() - interval '1 min' * n END, 0, 1, 1, 0, 1, 5,
    u.state, 't', $4 || n % 3, '', '{}', CASE WHEN u.state = 'running' THEN 's' || n % 7 END, 'w', '',
    CASE WHEN n % 50 = 0 THEN 'f' || u.id END, CASE WHEN n % 50 = 1 THEN 'k' || n END, n
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
INSERT INTO windlass.session SELECT 's' || n, 'w', '{}', now(), now(), now() + interval '1 min'
FROM generate_series(0, 4) AS n
"""
TABLES = ("task", "history", "idempotency", "dependency", "attempt", "session")


class Tables:
    """The tables of one schema, on a connection to fill them with."""

    def __init__(self, connection: psycopg.Connection, name: str) -> None:
        self._cursor = psycopg.RawCursor(connection)
        self._schema = name

    def fill(self, tasks: dict[str, int], queue: str = "q", size: float = 1.0) -> None:
        for place, (state, number) in enumerate(tasks.items()):
            self._run(TASKS, max(1, round(number * size)), state, f"{place:04x}", queue)
        self._run(HISTORY, max(1, round(ENDED * size)), DAYS)
        for sql in (KEYS, DEPENDENCIES, ATTEMPTS):
            self._run(sql, max(1, round(BESIDE * size)))
        self._run(SESSIONS)

    def empty(self) -> None:
        """Delete everything; what statistics say stays, and so do the dead rows."""
        for table in TABLES:
            self._run(f"DELETE FROM windlass.{table}")

    def analyse(self) -> None:
        for table in TABLES:
            self._run(f"ANALYZE windlass.{table}")

    def leave_alone(self) -> None:
        """Nobody analyses them but us."""
        sql = "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r'"
        for (table,) in self._cursor.execute(sql, [self._schema]).fetchall():
            self._run(f"ALTER TABLE windlass.{table} SET (autovacuum_enabled = false)")

    def _run(self, sql: str, *parameters: Any) -> None:
        self._cursor.execute(within(sql, self._schema).encode(), parameters or None)


def fresh(tables: Tables) -> None:
    tables.fill(USUAL)
    tables.analyse()


def never(tables: Tables) -> None:
    tables.fill(USUAL)


def from_empty(tables: Tables) -> None:
    tables.analyse()
    tables.fill(USUAL)


def from_tiny(tables: Tables) -> None:
    tables.fill(USUAL, size=TINY)
    tables.analyse()
    tables.empty()
    tables.fill(USUAL)


def from_elsewhere(tables: Tables) -> None:
    tables.fill(OTHERWISE, queue="old")
    tables.analyse()
    tables.empty()
    tables.fill(USUAL)


def a_few(tables: Tables) -> None:
    tables.fill({"ready": 10_000, "running": 500})
    tables.analyse()


def many(tables: Tables) -> None:
    tables.fill({"ready": 60_000, "running": 500})
    tables.analyse()


STATISTICS = {each.__name__: each for each in (fresh, never, from_empty, from_tiny, from_elsewhere)}
CONTENTS = STATISTICS | {each.__name__: each for each in (a_few, many)}
SERVERS = ("postgres15", "postgres_newest")


@pytest.fixture(scope="module")
def made() -> dict[tuple[str, str], str]:
    """The URLs of the stores that have been filled so far, by server and contents."""
    return {}


@pytest.fixture
async def filled(
    made: dict[tuple[str, str], str], postgres15: Postgres, postgres_newest: Postgres
) -> AsyncIterator[Filled]:
    """Connections as the store has them, to tables with these contents; filled when first asked for."""
    servers = {"postgres15": postgres15, "postgres_newest": postgres_newest}
    opened: list[Connections] = []

    async def on(server: str, contents: str) -> Connections:
        if (server, contents) not in made:
            made[server, contents] = await _make(servers[server], CONTENTS[contents])
        opened.append(Connections(parse(made[server, contents])))
        return opened[-1]

    yield on
    for connections in opened:
        await connections.close()


async def _make(server: Postgres, fill: Callable[[Tables], None]) -> str:
    url = new_schema(server.url)
    connections = Connections(parse(url))
    await schema.ensure(connections)
    await partitions.ensure_days(connections, YESTERDAY - timedelta(days=DAYS), DAYS)
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


def _text(name: str) -> str:
    return statement(name, "windlass")


PUT_TOGETHER = {
    "settle, no claim": settle_with(0, "windlass"),
    "settle and claim": settle_with(1, "windlass"),
    "settle and claim from three": settle_with(3, "windlass"),
    "enqueue": _text("enqueue").replace("-infinity", SINCE),
    "enqueue_one": _text("enqueue_one").replace("-infinity", SINCE),
    "look_between": _text("look_between").replace("-infinity", SINCE),
    "forget_day": _text("forget_day").replace("history_day", f"history_{YESTERDAY:%Y%m%d}"),
}

STATEMENTS = {
    name: Statement(PUT_TOGETHER.get(name) or _text(name), by)
    for name, by in {
        "settle, no claim": "task_pkey ctid",
        "settle and claim": "task_pkey task_ready ctid",
        "settle and claim from three": "task_pkey task_ready ctid",
        # the longer way
        "load": "task_pkey",
        "keep": "task_pkey",
        "end": "task_pkey",
        "fences": "history_id",
        "record": "",
        "forget_old_attempts": "attempt_pkey",
        "await": "task_pkey",
        "existing": "task_pkey history_id",
        "dependents": "dependency_pkey",
        "still_wait": "dependency_successor task_pkey",
        "forget_dependencies": "dependency_successor",
        # sessions
        "beat": "task_running",
        "held": "task_pkey",
        "report": "task_pkey",
        "once": "task_pkey",
        "alive": "",
        # enqueueing
        "enqueue": "history_id",
        "enqueue_one": "history_id",
        "look_between": "task_pkey history_id",
        "take_keys": "",
        "keys": "idempotency_pkey",
        "standing": "task_fingerprint",
        "depend": "",
        # pruning and replaying
        "expired_dead": "task_ended",
        "forget_ended": "history_id",
        "forget_about": "attempt_pkey idempotency_task",
        "load_cancelled": "history_id",
        "revive": "history_id",
        # asking
        "attempts": "attempt_pkey history_id",
    }.items()
} | {
    "promote": Statement(_text("promote"), "task_scheduled task_pkey", walks="task_scheduled"),
    "ready_queues": Statement(_text("ready_queues"), "task_ready", walks="task_ready"),
    "rescue": Statement(
        _text("rescue"), "task_running task_pkey", arguments="NULL, 's1', 100", walks="task_running"
    ),
    "forget_sessions": Statement(_text("forget_sessions"), "task_running"),
    "forget": Statement(_text("forget"), "task_pkey task_dead"),
    "prune_keys": Statement(_text("prune_keys"), "idempotency_until ctid"),
    "look": Statement(_text("look"), "task_ready task_scheduled", walks="task_scheduled"),
}
# Not here: expired.sql and forget_day.sql, which go through days of the history as it is their work to.


# -- plans -------------------------------------------------------------------------------------------


async def explained(connections: Connections, one: Statement, options: str = "") -> Node:
    """The plan of a prepared statement; whatever it does is undone."""
    async with connections.one() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute(
                f"{one.before}; PREPARE p AS {within(one.sql, connections.address.schema)}"
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
    def _parts(self) -> list[Node]:
        """The node, and for a bitmap the one that makes it."""
        return [self.node, *(node for node in self.node.get("Plans", ()) if "Bitmap" in node["Node Type"])]


PARTS = {"id": "history_id", "finished_at": "history_finished", "idempotency_key": "history_key"}
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
        # What is looked up by equality is as much as was asked for.
        if "Sort" in node["Node Type"] and any(
            not scan.bounded and " = " not in scan.condition for scan in scans(node)
        ):
            yield f"a sort by {', '.join(node['Sort Key'])} of what nothing bounds"


async def wrong(connections: Connections, statements: dict[str, Statement]) -> dict[str, list[str]]:
    """The complaints about each that there are any about."""
    found = {
        name: list(complaints(await explained(connections, one), one)) for name, one in statements.items()
    }
    return {name: complained for name, complained in found.items() if complained}


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("server", SERVERS)
async def test_every_statement_goes_by_an_index(filled: Filled, server: str, statistics: str) -> None:
    assert await wrong(await filled(server, statistics), STATEMENTS) == {}


@pytest.mark.parametrize("name", ["settle and claim", "settle and claim from three"])
@pytest.mark.parametrize("server", SERVERS)
async def test_a_claim_begins_at_its_floor_and_reads_one_stripe(
    filled: Filled, server: str, name: str
) -> None:
    plan = await explained(await filled(server, "never"), STATEMENTS[name])

    conditions = [scan.condition for scan in scans(plan) if scan.led_by == "task_ready"]
    assert conditions
    for column in ("queue = ", "stripe = ", "rank"):
        assert all(column in condition for condition in conditions)


@pytest.mark.parametrize("name", ["enqueue", "enqueue_one", "look_between"])
@pytest.mark.parametrize("server", SERVERS)
async def test_enqueueing_asks_the_history_from_the_given_day_on(
    filled: Filled, server: str, name: str
) -> None:
    plan = await explained(await filled(server, "fresh"), STATEMENTS[name])

    asked = {scan.node["Relation Name"] for scan in scans(plan)} - {"task"}
    days = {f"history_{YESTERDAY + timedelta(days=n):%Y%m%d}" for n in range(4)}
    assert asked == {*days, partitions.REST}


def test_a_wrong_plan_is_complained_about() -> None:
    seq = {"Node Type": "Seq Scan", "Relation Name": "history_20240515"}
    walk = {"Node Type": "Index Scan", "Relation Name": "task", "Index Name": "task_ready"}
    led = {**walk, "Index Cond": "(rank >= $1)"}
    sort = {"Node Type": "Sort", "Sort Key": ["rank"], "Plans": [led]}
    one = Statement("", "task_ready", walks="task_ready")

    assert list(complaints(seq, one)) == ["history_20240515 is read by no index"]
    assert list(complaints(walk, one)) == ["all of task_ready is gone through"]
    assert list(complaints(sort, one)) == ["a sort by rank of what nothing bounds"]
    assert not list(complaints({"Node Type": "Limit", "Plans": [walk]}, one))
    assert not list(complaints({**sort, "Plans": [{"Node Type": "Limit", "Plans": [led]}]}, one))


# -- pages -------------------------------------------------------------------------------------------


async def pages(connections: Connections, *arms: Arm) -> int:
    """How many pages a claim of a hundred touches."""
    claim = Claim(session="s1", queues=(), limit=100, number=1)
    asked = exchange(Terms(schema="windlass"), (), claim, arms)
    assert asked.sql is not None
    one = Statement(asked.sql, "", arguments=", ".join(map(literal, asked.parameters)))
    plan = await explained(connections, one, "BUFFERS, ")
    claimed = [node for node in below(plan) if node.get("Subplan Name") == "CTE claimed"]
    assert [node["Actual Rows"] for node in claimed] == [100]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def literal(value: Any) -> str:
    """A parameter as it is written in a statement."""
    if value is None:
        return "NULL"
    return f"'{{{','.join(map(str, value))}}}'" if isinstance(value, list) else f"'{value}'"


@pytest.mark.parametrize("arms", [[Arm("q0")], [Arm("q0"), Arm("q1"), Arm("q2")]], ids=["one queue", "three"])
@pytest.mark.parametrize("server", SERVERS)
async def test_a_claim_touches_as_many_pages_however_much_there_is(
    filled: Filled, server: str, arms: list[Arm]
) -> None:
    few = await pages(await filled(server, "a_few"), *arms)
    many = await pages(await filled(server, "many"), *arms)
    beside = await pages(await filled(server, "fresh"), *arms)

    assert few / 1.5 <= many <= few * 1.5
    assert many / 1.5 <= beside <= many * 1.5


@pytest.mark.parametrize("server", SERVERS)
async def test_a_claim_from_a_floor_on_touches_no_more(filled: Filled, server: str) -> None:
    connections = await filled(server, "fresh")
    sql = "SELECT rank, id::text FROM windlass.task WHERE state = 'ready' AND queue = 'q0' AND rank > 9000"
    async with connections.one() as connection:
        rank, task_id = await connection.fetchrow(within(sql, connections.address.schema))

    assert (
        await pages(connections, Arm("q0", 0, (rank, task_id))) <= await pages(connections, Arm("q0")) * 1.5
    )
