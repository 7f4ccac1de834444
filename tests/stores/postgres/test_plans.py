"""No statement walks through the backlog or sorts it, whatever is in the tables and whatever statistics say.

Plans are asked for as they are used: generic, of prepared statements, on connections set up as the store's.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from tests.examples import sample
from windlass._model.lease import Claim
from windlass._stores.postgres.connection.client import Connections
from windlass._stores.postgres.queue_layout import Environment, Stripe
from windlass._stores.postgres.settle import settle_and_claim
from windlass._stores.postgres.statements import (
    MANY_STRIPES,
    in_schema,
    settle_from_many_statement,
    settle_statement,
)
from windlass._stores.postgres.upkeep import partitions

from .plans import (
    ON_EACH_SERVER,
    OTHERWISE,
    SERVERS,
    TINY,
    USUAL,
    YESTERDAY,
    Statement,
    Stores,
    Tables,
    claimed,
    complaints,
    explained,
    scans,
    text,
    touched,
    wrong,
)

Filled = Callable[[str, str], Awaitable[Connections]]

SINCE = f"'{YESTERDAY} 00:00:00+00'"

# -- what is in the tables ---------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def stores(request: pytest.FixtureRequest) -> Stores:
    return Stores(CONTENTS, {name: request.getfixturevalue(name) for name in SERVERS})


@pytest.fixture
async def filled(stores: Stores) -> AsyncIterator[Filled]:
    yield stores.on
    await stores.close()


# -- statements, and what they may go by -------------------------------------------------------------


PUT_TOGETHER = {
    "settle, no claim": settle_statement(0, "windlass"),
    "settle and claim": settle_statement(1, "windlass"),
    "settle and claim from three": settle_statement(3, "windlass"),
    "settle and claim from many": settle_from_many_statement("windlass"),
    "settle and claim of types": settle_statement(1, "windlass", typed=True),
    "settle and claim of types from three": settle_statement(3, "windlass", typed=True),
    "enqueue": text("enqueue", since=SINCE),
    "enqueue_one": text("enqueue_one", since=SINCE),
    "any_id_between": text("any_id_between", since=SINCE),
}

DAY = f"history_{YESTERDAY:%Y%m%d}"
KEPT = f"CREATE TABLE windlass.{DAY}_kept (LIKE windlass.history INCLUDING ALL)"

STATEMENTS = {
    name: Statement(PUT_TOGETHER.get(name) or text(name), by)
    for name, by in {
        "settle, no claim": "task_pkey ctid",
        "settle and claim": "task_pkey task_ready ctid",
        "settle and claim from three": "task_pkey task_ready ctid",
        "settle and claim of types": "task_pkey task_ready ctid",
        "settle and claim of types from three": "task_pkey task_ready ctid",
        # the longer way
        "load_tasks": "task_pkey",
        "update_tasks": "task_pkey",
        "end_tasks": "task_pkey",
        "ended_fences": "history_id",
        "insert_attempts": "",
        "delete_old_attempts": "attempt_pkey",
        "lock_predecessors": "task_pkey",
        "lock_ended": "history_id",
        "states": "task_pkey history_id",
        "dependents": "dependency_pkey",
        "still_waiting": "dependency_successor task_pkey",
        "delete_dependencies": "dependency_successor",
        # sessions
        "heartbeat": "task_running",
        "running_leases": "task_pkey",
        "put_progress": "task_pkey",
        "mark_once": "task_pkey",
        "live_worker": "",
        # enqueueing
        "enqueue": "history_id",
        "enqueue_one": "history_id",
        "any_id_between": "task_pkey history_id",
        "take_keys": "",
        "key_owners": "idempotency_pkey",
        "taken_fingerprints": "task_fingerprint",
        "insert_dependencies": "",
        # pruning and replaying
        "expired_dead": "task_ended",
        "first_left_dead": "task_ended",
        "delete_ended": "history_id dependency_pkey",
        "delete_attempts_and_keys": "attempt_pkey idempotency_task",
        "load_cancelled": "history_id",
        "revive": "history_id",
        # asking
        "attempts": "attempt_pkey history_id",
        "ended": "task_pkey",
    }.items()
} | {
    "settle and claim from many": Statement(
        PUT_TOGETHER["settle and claim from many"], "task_pkey task_ready ctid", walks="task_ready"
    ),
    "promote": Statement(text("promote"), "task_scheduled task_pkey", walks="task_scheduled"),
    "ready_queues": Statement(text("ready_queues"), "task_ready", walks="task_ready"),
    "dead_failures": Statement(text("dead_failures"), "task_failure", walks="task_failure"),
    "rescue": Statement(
        text("rescue"), "task_running task_pkey", arguments="NULL, 's1', 100", walks="task_running"
    ),
    "delete_sessions": Statement(text("delete_sessions"), "task_running"),
    "delete_dead": Statement(text("delete_dead"), "task_pkey task_dead"),
    "prune_keys": Statement(text("prune_keys"), "idempotency_until ctid"),
    "poll": Statement(text("poll"), "task_ready task_scheduled", walks="task_scheduled"),
}
# Not here: those that read whole days of the history on purpose, such as expired.sql since an instant.

# What a prune has left before is looked up by its ids.
STATEMENTS |= {
    name: Statement(text(name, table="history", looked_at="h.id = ANY ($3::uuid[])"), by)
    for name, by in (("expired", "history_id dependency_pkey"), ("left_expired", "history_id"))
}

# What makes a day smaller goes through the dependencies, and looks up the rest.
STATEMENTS |= {
    name: Statement(text(name, partition=DAY), f"{whole} {by}", before=KEPT, whole=whole)
    for name, whole, by in (
        ("lock_day_joins", "dependency_successor", "history_id dependency_pkey"),
        ("count_day", "dependency_pkey history_id", ""),
        ("copy_day", "dependency_pkey", "history_id"),
        ("needs_more_of_day", "dependency_pkey dependency_successor", "history_id kept_id"),
    )
}


# -- plans -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statistics", sample(["fresh", "never"], ["from_empty", "from_tiny", "from_elsewhere"])
)
@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_every_statement_goes_by_an_index(filled: Filled, server: str, statistics: str) -> None:
    assert await wrong(await filled(server, statistics), STATEMENTS) == {}


@pytest.mark.parametrize(
    "statistics", sample(["fresh", "never"], ["from_empty", "from_tiny", "from_elsewhere"])
)
@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_of_the_details_of_a_day_nothing_is_scanned_but_that_day(
    filled: Filled, server: str, statistics: str
) -> None:
    details = "kept_id attempt_pkey idempotency_task"
    one = Statement(text("delete_day_details", partition=DAY), details, before=KEPT)

    plan = await explained(await filled(server, statistics), one)

    assert {complaint.partition(" is read by ")[0] for complaint in complaints(plan, one)} == {DAY}


@pytest.mark.parametrize("name", ["settle and claim", "settle and claim from three"])
@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_a_claim_begins_at_its_floor_and_reads_one_stripe(
    filled: Filled, server: str, name: str
) -> None:
    plan = await explained(await filled(server, "never"), STATEMENTS[name])

    conditions = [scan.condition for scan in scans(plan) if scan.led_by == "task_ready"]
    assert conditions
    for column in ("queue = ", "stripe = ", "rank"):
        assert all(column in condition for condition in conditions)


@pytest.mark.parametrize("name", ["enqueue", "enqueue_one", "any_id_between"])
@pytest.mark.parametrize("server", ON_EACH_SERVER)
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
    backlog = {**sort, "Plans": [{**walk, "Index Cond": "(queue = $1)"}]}
    one = Statement("", "task_ready", walks="task_ready")

    assert list(complaints(seq, one)) == ["history_20240515 is read by no index"]
    assert list(complaints(walk, one)) == ["all of task_ready is gone through"]
    assert list(complaints(sort, one)) == ["a sort by rank of what nothing bounds"]
    assert list(complaints(backlog, one)) == ["a sort by rank of what nothing bounds"]
    assert not list(complaints({"Node Type": "Limit", "Plans": [walk]}, one))
    assert not list(complaints({**sort, "Plans": [{"Node Type": "Limit", "Plans": [led]}]}, one))


# -- pages -------------------------------------------------------------------------------------------


async def pages(connections: Connections, *arms: Stripe) -> int:
    """How many pages a claim of a hundred touches."""
    claim = Claim(session="s1", queues=(), limit=100, number=1)
    asked = settle_and_claim(Environment(schema="windlass"), (), claim, arms)
    assert asked.sql is not None
    number, plan = await touched(connections, asked.sql, *asked.parameters)
    assert claimed(plan) == 100
    return number


@pytest.mark.parametrize(
    "arms",
    [
        [Stripe("q0")],
        [Stripe("q0"), Stripe("q1"), Stripe("q2")],
        [Stripe(f"q{n}") for n in range(MANY_STRIPES + 1)],
    ],
    ids=["one queue", "three", "many"],
)
@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_a_claim_touches_as_many_pages_however_much_there_is(
    filled: Filled, server: str, arms: list[Stripe]
) -> None:
    few = await pages(await filled(server, "a_few"), *arms)
    many = await pages(await filled(server, "many"), *arms)
    beside = await pages(await filled(server, "fresh"), *arms)

    assert few / 1.5 <= many <= few * 1.5
    assert many / 1.5 <= beside <= many * 1.5


@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_a_claim_from_a_floor_on_touches_no_more(filled: Filled, server: str) -> None:
    connections = await filled(server, "fresh")
    sql = "SELECT rank, id::text FROM windlass.task WHERE state = 'ready' AND queue = 'q0' AND rank > 9000"
    async with connections.one() as connection:
        rank, task_id = await connection.fetchrow(in_schema(sql, connections.address.schema))

    assert (
        await pages(connections, Stripe("q0", 0, (rank, task_id)))
        <= await pages(connections, Stripe("q0")) * 1.5
    )
