"""No claim from lanes walks through a backlog, a table or all lanes, whatever statistics say."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.examples import sample
from windlass._model.lease import Claim
from windlass._model.queue import Level
from windlass._stores.postgres.claim.limited import IN_LANE, PRIORITIES
from windlass._stores.postgres.connection.client import Connections
from windlass._stores.postgres.queue_layout import Environment
from windlass._stores.postgres.settle import settle_and_claim_from_lanes
from windlass._stores.postgres.statements import of_types, settle_from_lanes_statement

from .plans import (
    NOW,
    ON_EACH_SERVER,
    OTHERWISE,
    SERVERS,
    TINY,
    USUAL,
    Statement,
    Stores,
    Tables,
    below,
    claimed,
    explained,
    scans,
    text,
    touched,
    wrong,
)
from .test_plans import STATEMENTS

Filled = Callable[[str, str], Awaitable[Connections]]

# -- what is in the tables ---------------------------------------------------------------------------

BIG = 60_000  # tasks in one lane
LANES = 3_000  # with a few each
KEYS = 1_000  # in one lane
BUCKETS = 10_000
ENDED = 20_000  # permits of tasks that run no more

LAID = """
INSERT INTO windlass.task (
    id, root, run_at, created_at, boost, priority, max_attempts, state, type, queue, tenant, payload,
    enqueued_by, rank, stripe, lane, key
)
SELECT
    gen_random_uuid(), gen_random_uuid(), now(), now(), 0,
    CASE n % 20 WHEN 1 THEN 1 WHEN 2 THEN -1 ELSE 0 END, 5, 'ready', 't', 'lanes', '', '{}', '', n, -1,
    CASE WHEN $3::boolean THEN $2::text || n / 5 + 10000 ELSE $2 END,
    CASE WHEN $4::boolean THEN 'key' || n / 5 + 10000 ELSE '' END
FROM generate_series(1, $1::integer) AS n
"""
HELD = """
INSERT INTO windlass.permit (key, task_id, at)
SELECT 'b' || row_number() OVER () % 50, t.id, coalesce(t.claimed_at, now())
FROM windlass.task AS t
WHERE t.state = 'running'
UNION ALL
SELECT CASE WHEN n % 4 = 0 THEN 'b1' ELSE 'b' || n % 5000 END, gen_random_uuid(), now()
FROM generate_series(1, $1::integer) AS n
"""
COUNTED = """
INSERT INTO windlass.bucket (key, tokens, at)
SELECT 'b' || n, 1, now() FROM generate_series(1, $1::integer) AS n
"""
DRAINED = "DELETE FROM windlass.task WHERE queue = 'lanes' AND rank <= 200"


def lay(tables: Tables, size: float = 1.0, big: int = BIG) -> None:
    """Fill lanes beside what lies in lines already, and what limits count."""
    for lane, number, numbered, keyed in (
        ("big", big, False, False),
        ("tenant", 5 * LANES, True, False),
        ("keyed", 5 * KEYS, False, True),
    ):
        tables.run(LAID, max(1, round(number * size)), lane, numbered, keyed)
    tables.run(HELD, max(1, round(ENDED * size)))
    tables.run(COUNTED, max(1, round(BUCKETS * size)))


def fresh(tables: Tables) -> None:
    tables.fill(USUAL)
    lay(tables)
    tables.analyse()


def never(tables: Tables) -> None:
    tables.fill(USUAL)
    lay(tables)


def from_empty(tables: Tables) -> None:
    tables.analyse()
    never(tables)


def from_tiny(tables: Tables) -> None:
    tables.fill(USUAL, size=TINY)
    lay(tables, TINY)
    tables.analyse()
    tables.empty()
    never(tables)


def from_elsewhere(tables: Tables) -> None:
    tables.fill(OTHERWISE, queue="old")
    tables.analyse()
    tables.empty()
    never(tables)


def from_lines(tables: Tables) -> None:
    """As it was before anybody thought of lanes."""
    tables.fill(USUAL)
    tables.analyse()
    lay(tables)


def from_idle(tables: Tables) -> None:
    """As it was while nothing ran, and nothing had been counted."""
    tables.fill({"ready": 20_000})
    tables.analyse()
    tables.empty()
    never(tables)


def drained(tables: Tables) -> None:
    """The heads of all lanes were taken a moment ago, and lie there dead."""
    fresh(tables)
    tables.run(DRAINED)


def small(tables: Tables) -> None:
    tables.fill(USUAL)
    lay(tables, big=2_000)
    tables.analyse()


STATISTICS = {
    each.__name__: each
    for each in (fresh, never, from_empty, from_tiny, from_elsewhere, from_lines, from_idle, drained)
}
CONTENTS = STATISTICS | {"small": small}
DEFAULT = ("fresh", "never")


@pytest.fixture(scope="module")
def stores(request: pytest.FixtureRequest) -> Stores:
    return Stores(CONTENTS, {name: request.getfixturevalue(name) for name in SERVERS})


@pytest.fixture
async def filled(stores: Stores) -> AsyncIterator[Filled]:
    yield stores.on
    await stores.close()


# -- statements, and what they may go by -------------------------------------------------------------

IN_LANES = (
    {
        # a claim
        "settle in lanes": Statement(settle_from_lanes_statement("windlass"), "task_pkey task_lane ctid"),
        "claim_begin": Statement(text("claim_begin"), "task_ready"),
        "lanes": Statement(text("lanes"), "task_lane"),
        "lane_keys": Statement(text("lane_keys", of_types="", in_lane=""), "task_lane"),
        "lane_keys of types": Statement(
            text("lane_keys", of_types=of_types(7), in_lane=IN_LANE), "task_lane"
        ),
        "lane_heads": Statement(text("lane_heads", of_types=""), "task_lane"),
        "lane_heads of types": Statement(text("lane_heads", of_types=of_types(7)), "task_lane"),
        "lock_new_buckets": Statement(text("lock_new_buckets"), ""),
        "try_lock_new_buckets": Statement(text("try_lock_new_buckets"), ""),
        "insert_buckets": Statement(text("insert_buckets"), ""),
        "lock_buckets": Statement(text("lock_buckets"), "bucket_pkey"),
        "try_lock_buckets": Statement(text("try_lock_buckets"), "bucket_pkey"),
        "count_permits": Statement(text("count_permits"), "permit_pkey task_pkey ctid"),
        "lease": Statement(text("lease"), "task_pkey bucket_pkey"),
        "layout": Statement(text("layout"), ""),
        # putting into lanes, and taking out
        "misplaced": Statement(text("misplaced"), "task_ready"),
        "place_in_lanes": Statement(text("place_in_lanes"), "task_pkey"),
        "take_out_of_lanes": Statement(text("take_out_of_lanes"), "task_lane task_pkey"),
        "laned_queues": Statement(text("laned_queues"), "task_lane", walks="task_lane"),
        "mark_moving": Statement(text("mark_moving"), ""),
        "moving_queues": Statement(text("moving_queues"), ""),
        "mark_moved": Statement(text("mark_moved"), ""),
        "drop_unneeded_lanes": Statement(text("drop_unneeded_lanes"), ""),
        # limits
        "guard_queues": Statement(text("guard_queues"), ""),
        "unguard_queues": Statement(text("unguard_queues"), ""),
        "lock_limit_buckets": Statement(text("lock_limit_buckets"), "bucket_pkey"),
        "fix_tokens": Statement(text("fix_tokens"), "bucket_pkey"),
        "insert_permits": Statement(text("insert_permits"), "task_pkey"),
        "limit_usage": Statement(
            text("limit_usage"), "bucket_pkey permit_pkey task_pkey", whole="bucket_pkey"
        ),
        "running_tasks": Statement(text("running_tasks"), "task_running", whole="task_running"),
        "prune_buckets": Statement(
            text("prune_buckets"), "bucket_pkey permit_pkey task_pkey", walks="bucket_pkey"
        ),
        "wake_all": Statement(text("wake_all"), ""),
        "queue_settings": Statement(text("queue_settings"), ""),
        "get_record": Statement(text("get_record"), ""),
    }
    | {
        f"level_heads {level}": Statement(text("level_heads", level=which, of_types=""), f"task_{level}")
        for level, which in PRIORITIES.items()
        if level is not Level.MEDIUM
    }
    | {"medium_heads": Statement(text("medium_heads", of_types=""), "task_ready")}
)


# Those that were there before, and have to do with lanes now.
CHANGED = {
    name: STATEMENTS[name]
    for name in (
        "settle, no claim",
        "settle and claim",
        "settle and claim from three",
        "load_tasks",
        "update_tasks",
        "promote",
        "enqueue",
        "enqueue_one",
        "ready_queues",
        "poll",
    )
}


@pytest.mark.parametrize("statistics", sample(DEFAULT, [s for s in STATISTICS if s not in DEFAULT]))
@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_every_statement_goes_by_an_index(filled: Filled, server: str, statistics: str) -> None:
    assert await wrong(await filled(server, statistics), IN_LANES | CHANGED) == {}


def parts(way: str) -> list[str]:
    """The columns that a way in goes by, each compared for itself; or all of them as one row."""
    return [way] if way.startswith("ROW") else way.split(", ")


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("settle in lanes", ["queue = , lane = , key = "]),
        ("lane_heads", ["queue = , lane = , key = "]),
        ("lane_keys", ["ROW(queue, lane, key)", "queue = , lane = , key = "]),
        ("lanes", ["ROW(queue, lane)", "queue = , lane = "]),
    ],
)
@pytest.mark.parametrize("statistics", ["never", "from_lines"])
@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_a_claim_leaps_to_its_lanes(
    filled: Filled, server: str, statistics: str, name: str, ways: list[str]
) -> None:
    plan = await explained(await filled(server, statistics), IN_LANES[name])

    conditions = [scan.condition for scan in scans(plan) if scan.led_by == "task_lane"]
    assert conditions
    for condition in conditions:
        assert any(
            all(part in condition.replace("t.", "").replace("task.", "") for part in parts(way))
            for way in ways
        )


@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_permits_are_counted_without_going_through_them_for_each_key(
    filled: Filled, server: str
) -> None:
    plan = await explained(await filled(server, "fresh"), IN_LANES["count_permits"])

    joins = [node for node in below(plan) if node["Node Type"] == "Nested Loop"]
    assert joins
    assert not any("Join Filter" in node for node in joins)


# -- pages -------------------------------------------------------------------------------------------

TENANTS = [f"tenant{number}" for number in range(10_000, 10_500)]


async def claiming(connections: Connections, numbers: dict[str, int]) -> int:
    """How many pages a claim of so many tasks of each lane touches."""
    claim = Claim(session="s1", queues=(), limit=1000, number=1)
    asked = settle_and_claim_from_lanes(
        Environment(schema="windlass"),
        (),
        claim,
        {("lanes", lane): number for lane, number in numbers.items()},
    )
    assert asked.sql is not None
    number, plan = await touched(connections, asked.sql, *asked.parameters)
    assert claimed(plan) == sum(numbers.values())
    return number


@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_a_claim_touches_as_many_pages_however_much_is_in_its_lane(filled: Filled, server: str) -> None:
    little = await claiming(await filled(server, "small"), {"big": 100})
    much = await claiming(await filled(server, "fresh"), {"big": 100})

    assert little / 1.5 <= much <= little * 1.5


@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_a_claim_touches_pages_for_its_lanes_and_no_others(filled: Filled, server: str) -> None:
    connections = await filled(server, "fresh")
    few = await claiming(connections, dict.fromkeys(TENANTS[:10], 1))
    many = await claiming(connections, dict.fromkeys(TENANTS[:100], 1))

    assert many <= few * 10 * 1.5


ASKED: dict[str, tuple[Any, ...]] = {
    "lanes": ("lanes", "", "z", 100, 0),
    "lane_heads": ("lanes", ["big"], [""], [100], [], NOW),
    "lane_heads of many": ("lanes", TENANTS[:100], [""] * 100, [1] * 100, [], NOW),
    "lane_keys": ("lanes", ["keyed"], ["key10100"], 64, [], NOW),
    "lane_keys of many": ("lanes", TENANTS[:100], [""] * 100, 64, [], NOW),
    "level_heads high": ("lanes", 100, [], NOW),
    "level_heads low": ("lanes", 100, [], NOW),
    "medium_heads": ("lanes", 100, [], NOW),
    "claim_begin": (None, "s1", ["lanes", "q0"]),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("server", ON_EACH_SERVER)
async def test_what_a_claim_asks_touches_as_many_pages_however_much_there_is(
    filled: Filled, server: str, name: str
) -> None:
    sql = IN_LANES[name.removesuffix(" of many")].sql
    little, _ = await touched(await filled(server, "small"), sql, *ASKED[name])
    much, _ = await touched(await filled(server, "fresh"), sql, *ASKED[name])

    assert little / 1.75 <= much <= little * 1.75  # The index may have grown by a level.
    assert much <= 1_500
