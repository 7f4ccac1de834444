"""Claims that begin where the last one did: only while it pays, and never past what is there."""

import json

import asyncpg
import pytest

from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.claim.fifo import SLOWDOWN, StartPositions
from windlass._stores.postgres.queue_layout import START
from windlass._stores.postgres.settle import settle_and_claim
from windlass._stores.postgres.statements import MANY_STRIPES, in_schema
from windlass.testing.conformance.steps import a_task, complete, settle, some_tasks, worker_on


class Learning:
    """Floors that are taught by hand; time goes on with every claim."""

    def __init__(self, claimed: list) -> None:
        self.floors = StartPositions()
        self.claimed = claimed
        self.now = 0.0

    def claim(self, seconds: float, wait: float = 0.0) -> bool:
        """One claim that takes so long; says whether it had a floor."""
        self.now += wait
        floored = self.floors.of(["q"], self.now) != [START]
        self.now += seconds
        self.floors.learn(self.claimed, 100, seconds, started=floored, now=self.now)
        return floored


@pytest.fixture
async def learning(store: PostgresStore) -> Learning:
    await store.enqueue(some_tasks(3, queue="q"))
    return Learning(list(await (await worker_on(store)).claim(3, "q")))


def test_claims_that_stay_quick_never_have_a_floor(learning: Learning) -> None:
    assert not any(learning.claim(0.01 * (1 + n % 2)) for n in range(200))


def test_when_claims_get_slow_a_floor_is_tried_and_kept_while_it_pays(learning: Learning) -> None:
    for _ in range(20):
        learning.claim(0.01)
    while not learning.claim(0.01 * SLOWDOWN * 2):
        assert learning.now < 10, "no floor was tried"
    quick = [
        learning.claim(0.01 if learning.floors.of(["q"], learning.now) != [START] else 0.06)
        for _ in range(300)
    ]

    assert quick.count(True) > 200
    assert quick.count(False) > 5, "the whole must be looked at now and then"
    assert not any([learning.claim(0.01, wait=0.2) for _ in range(20)][5:]), (
        "it is quick again without a floor"
    )


def test_a_floor_that_does_not_help_is_given_up(learning: Learning) -> None:
    for _ in range(20):
        learning.claim(0.01)

    floored = [learning.claim(0.08) for _ in range(200)]

    assert 1 <= floored.count(True) <= 5


async def test_with_a_floor_nothing_is_missed(store: PostgresStore) -> None:
    """What is more urgent than the floor is found at the next look at the whole, or for want of other."""
    worker = await worker_on(store)
    await store.enqueue(some_tasks(6, queue="q"))
    await settle(store, *[complete(one) for one in await worker.claim(2, "q")])
    floors = store._claimer._fifo._starts
    floors._active, floors._next_whole = True, float("inf")
    urgent = a_task(queue="q", priority=1)
    await store.enqueue([urgent])

    passed_over = await worker.claim(2, "q")
    rest = await worker.claim(5, "q")

    assert urgent.id not in [one.task.id for one in passed_over]
    assert rest[0].task.id == urgent.id
    assert len(rest) == 3


async def test_a_pinned_horizon_does_not_make_claims_walk_past_the_dead(store: PostgresStore) -> None:
    """With a floor a claim touches as few pages as on a fresh table, however much was claimed before it."""
    worker = await worker_on(store)
    pinning = await asyncpg.connect(store.address.dsn)
    try:
        await pinning.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
        await store.enqueue(some_tasks(6_000, queue="q"))
        last = []
        for _ in range(5):
            last = await worker.claim(1_000, "q")
            await settle(store, *[complete(one) for one in last])
        whole = await buffers(store, START)
        floored = await buffers(store, (last[0].task.rank, last[0].task.id))
    finally:
        await pinning.close()

    assert floored * 3 < whole


async def buffers(store: PostgresStore, floor: tuple[int, str]) -> int:
    """Pages that looking for the first ready task touches."""
    sql = (
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT id FROM {store.address.schema}.task "
        f"WHERE state = 'ready' AND queue = 'q' AND stripe = 0 AND (rank, id) >= {floor} "
        f"ORDER BY rank, id LIMIT 100"
    )
    async with store.connections.one() as connection:
        (plan,) = json.loads(await connection.fetchval(sql))
        return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@pytest.mark.parametrize("queues", [2, 3 * MANY_STRIPES])
async def test_a_claim_goes_past_tasks_that_others_have_locked(store: PostgresStore, queues: int) -> None:
    """They are the first of all and others behind them are in other queues."""
    names = [f"q{n}" for n in range(queues)]
    tasks = [a_task(queue=name) for name in names for _ in range(6 // queues or 1)]
    await store.enqueue(tasks)
    worker, half = await worker_on(store), len(tasks) // 2
    async with store.connections.one() as connection, connection.transaction():
        lock = in_schema(
            "SELECT FROM windlass.task ORDER BY rank, id LIMIT $1 FOR UPDATE",
            store.connections.address.schema,
        )
        await connection.execute(lock, half)

        claimed = await worker.claim_ids(half, *names)

    assert claimed == [task.id for task in tasks[half:]]
    assert await worker.claim_ids(len(tasks), *names) == [task.id for task in tasks[:half]]


async def test_a_claim_locks_no_more_than_it_takes(store: PostgresStore) -> None:
    """Else a claim at the same time finds too few."""
    names = [f"q{n}" for n in range(2 * MANY_STRIPES)]
    await store.enqueue([a_task(queue=name) for name in names])
    worker, other = await worker_on(store, "one"), await worker_on(store, "other")
    claim = worker.next_claim(5, *names)
    query = settle_and_claim(store.env, (), claim, store.layout.all_stripes(names))
    async with store.connections.one() as connection, connection.transaction():
        await connection.fetch(query.sql, *query.parameters)

        assert len(await other.claim(len(names), *names)) == len(names) - 5
