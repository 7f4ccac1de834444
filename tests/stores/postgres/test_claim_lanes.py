"""Lanes and limits in Postgres: what other handles do not know yet, what is left behind, what comes back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tests.loops.workers import eventually
from tests.stores.schemas import Schemas
from windlass._model.limit import Limit, Usage
from windlass._model.queue import Fairness, QueueSettings, Retention
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.claim import lanes, relayout
from windlass._stores.postgres.statements import in_schema
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    ManualWorker,
    a_task,
    all_records,
    complete,
    enqueue_one,
    retry,
    settle_now,
    some_tasks,
    worker_on,
)

FAIR = QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN)
PLAIN = QueueSettings(name="q")
ONE = Limit(name="one", queue="q", running=1)
BY_TENANT = Limit(name="each", queue="q", by="tenant", running=50)
KEPT = Retention(completed=None, cancelled=None, dead=None)


@pytest.fixture
async def store(schemas_newest: Schemas, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    with schemas_newest.lent() as fresh:
        store = fresh(clock)
        await store.open()
        yield store
        await store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def other(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another handle, which knows by now how the queues are laid out, and believes it for two seconds."""
    other = store.another()
    await enqueue_one(other, queue="elsewhere")
    worker = await worker_on(other)
    assert await worker.claim(1, "elsewhere")
    yield other
    await other.close()


async def ask(store: PostgresStore, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(store.address.dsn)
    try:
        found = await connection.fetch(in_schema(sql, store.address.schema), *parameters)
    finally:
        await connection.close()
    return [tuple(row) for row in found]


async def is_laned(store: PostgresStore) -> bool:
    return (await ask(store, "SELECT laned FROM windlass.queue WHERE name = 'q'")) == [(True,)]


async def claimed_by(worker: ManualWorker, limit: int = 50) -> list[str]:
    found: list[str] = []
    while more := await worker.claim(limit, "q"):
        found += [one.task.id for one in more]
    return found


# -- handles that do not know yet --------------------------------------------------------------------


async def test_what_a_producer_puts_in_as_into_a_line_is_found_and_laid(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.put(FAIR)
    new = [a_task(queue="q", tenant=tenant) for tenant in ("ada", "ada", "bob")]
    await other.enqueue(new)
    worker = await worker_on(store)

    assert await ask(store, "SELECT DISTINCT lane FROM windlass.task WHERE queue = 'q'") == [(None,)]
    assert Counter(one.task.tenant for one in await worker.claim(2, "q")) == {"ada": 1, "bob": 1}
    assert await ask(store, "SELECT stripe, lane, key FROM windlass.task WHERE state = 'ready'") == [
        (-1, "ada", "")
    ]


async def test_what_a_producer_puts_into_lanes_is_found_when_the_queue_is_a_line_again(
    store: PostgresStore, clock: ManualClock
) -> None:
    """Its transaction was open for minutes, say."""
    await store.put(FAIR)
    late = store.another()
    await enqueue_one(late, queue="q", tenant="ada")
    worker = await worker_on(store)
    await settle_now(store, *map(complete, await worker.claim(5, "q")))
    await store.put(PLAIN)
    clock.advance(timedelta(minutes=2))
    await store.prune(KEPT, 100)
    assert not await is_laned(store)
    forgotten = await enqueue_one(late, queue="q", tenant="ada")
    assert await ask(store, "SELECT stripe FROM windlass.task WHERE queue = 'q'") == [(-1,)]

    await worker.beat(opening=True)
    before = await worker.claim(1, "q")
    await store.prune(KEPT, 100)

    assert [one.task.id for one in [*before, *await worker.claim(1, "q")]] == [forgotten]
    await late.close()


async def test_a_worker_that_knows_of_lanes_notices_that_there_are_none_any_more(
    store: PostgresStore, clock: ManualClock
) -> None:
    await store.put(FAIR)
    late = store.another()
    worker = await worker_on(late)
    await worker.claim(1, "q")
    await store.put(PLAIN)
    clock.advance(timedelta(minutes=2))
    await store.prune(KEPT, 100)
    await worker.beat(opening=True)
    task = await enqueue_one(store, queue="q")

    claims = [await worker.claim(1, "q") for _ in range(2)]

    assert [one.task.id for claim in claims for one in claim] == [task]
    await late.close()


async def test_a_limit_holds_for_those_who_do_not_know_it(store: PostgresStore, other: PostgresStore) -> None:
    await other.enqueue(some_tasks(5, queue="q"))
    await store.put(replace(ONE, running=2))
    worker = await worker_on(other)

    assert [len(await worker.claim(5, "q")) for _ in range(2)] == [2, 0]


async def test_a_limit_on_all_queues_holds_for_those_who_do_not_know_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    await other.enqueue([a_task(queue=queue) for queue in ("q", "p") for _ in range(5)])
    await store.put(Limit(name="all", running=4))  # and one runs elsewhere
    worker = await worker_on(other)

    assert [len(await worker.claim(5, "q", "p")) for _ in range(2)] == [3, 0]


async def test_settling_and_claiming_in_one_keeps_to_a_limit_not_known_of(
    store: PostgresStore, other: PostgresStore
) -> None:
    await other.enqueue(some_tasks(5, queue="q"))
    worker = await worker_on(other)
    first = await worker.claim(2, "q")
    await store.put(ONE)

    settled = await other.settle([complete(first[0])], worker.next_claim(5, "q"))
    again = await other.settle([retry(first[1])], worker.next_claim(5, "q"))

    assert [len(settled.claimed), len(again.claimed)] == [0, 1]


# -- lanes and lines ---------------------------------------------------------------------------------


async def test_a_queue_that_needs_no_lanes_any_more_is_a_line_again_after_a_while(
    store: PostgresStore, clock: ManualClock
) -> None:
    await store.put(FAIR)
    new = some_tasks(30, queue="q", tenant="ada")
    await store.enqueue(new)
    await store.put(PLAIN)
    await store.prune(KEPT, 100)
    still = await is_laned(store)
    clock.advance(timedelta(minutes=2))
    await store.prune(KEPT, 100)
    worker = await worker_on(store)

    assert still
    assert not await is_laned(store)
    assert await claimed_by(worker) == [task.id for task in new]


async def test_settings_that_move_nothing_move_nothing(store: PostgresStore) -> None:
    await store.put(FAIR)
    await store.enqueue(some_tasks(3, queue="q", tenant="ada"))
    before = await ask(store, "SELECT ctid::text FROM windlass.task ORDER BY id")

    await store.put(replace(FAIR, paused=True))
    await store.put(replace(FAIR, weights={"ada": 5}))

    assert await ask(store, "SELECT ctid::text FROM windlass.task ORDER BY id") == before


async def test_a_changed_number_moves_nothing(store: PostgresStore) -> None:
    await store.put(ONE)
    await store.enqueue(some_tasks(3, queue="q"))
    before = await ask(store, "SELECT ctid::text FROM windlass.task ORDER BY id")

    await store.put(replace(ONE, running=7))

    assert await ask(store, "SELECT ctid::text FROM windlass.task ORDER BY id") == before


async def test_busy_lanes_do_not_hide_what_lies_outside_them(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is given all it asks for by what is known of the lanes looks outside now and then."""
    monkeypatch.setattr(lanes, "COUNTED_EVERY", 0.0)
    await store.put(FAIR)
    await store.enqueue(some_tasks(500, queue="q", tenant="ada"))
    outside = await enqueue_one(other, queue="q", tenant="bob")
    worker = await worker_on(store)

    claimed = [one.task.id for _ in range(5) for one in await worker.claim(4, "q")]

    assert outside in claimed


async def test_a_claim_from_an_empty_queue_with_random_fairness_ends(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "COUNTED_EVERY", 60.0)
    await store.put(QueueSettings(name="q", fairness=Fairness.RANDOM))
    await enqueue_one(store, queue="q", tenant="ada")
    worker = await worker_on(store)
    assert len(await worker.claim(5, "q")) == 1

    async with asyncio.timeout(10):
        assert await worker.claim(5, "q") == []


async def test_many_claimers_get_every_task_exactly_once(store: PostgresStore) -> None:
    await store.put(FAIR)
    await store.put(Limit(name="each", by="tenant", running=400))
    batch = [a_task(queue="q", tenant=f"t{number % 13}") for number in range(400)]
    await store.enqueue(batch)
    handles = [store.another() for _ in range(3)]
    workers = [await worker_on(handle) for handle in handles for _ in range(4)]

    claimed = await asyncio.gather(*(claimed_by(worker, 7) for worker in workers))
    for handle in handles:
        await handle.close()

    assert sorted(one for some in claimed for one in some) == sorted(task.id for task in batch)


async def test_claims_that_meet_known_and_new_keys_do_not_deadlock(store: PostgresStore) -> None:
    await store.put(Limit(name="each", by="tenant", running=400))
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    backends = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    before, others = await ask(store, deadlocks), await ask(store, backends)
    handles = [store.another() for _ in range(3)]
    workers = [await worker_on(handle) for handle in handles for _ in range(4)]
    left = 0
    for number in range(1, 13):  # each round has new keys between the known ones
        keys = [(key * number) % 37 for key in range(number, 4 * number)]
        left += len(await store.enqueue([a_task(queue="q", tenant=f"t{key:02}") for key in keys * 4]))
        left -= sum(map(len, await asyncio.gather(*(claimed_by(worker, 7) for worker in workers))))
    for handle in handles:
        await handle.close()

    assert left == 0

    async def has_ended() -> bool:
        return await ask(store, backends) <= others

    await eventually(has_ended)  # a connection reports its deadlocks when it ends
    assert await ask(store, deadlocks) == before


@pytest.mark.parametrize("change", ["fairness", "limit", "limit on all"])
async def test_nothing_is_lost_if_whoever_lays_anew_dies_in_the_middle(
    store: PostgresStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    limit = replace(BY_TENANT, queue=None) if change == "limit on all" else BY_TENANT
    await store.put(FAIR if change == "fairness" else limit)
    new = [a_task(queue="q", tenant=f"t{number % 9}") for number in range(60)]
    await store.enqueue(new)

    async def die(*_: Any) -> None:
        raise RuntimeError("it died here")

    changing = store.put(PLAIN) if change == "fairness" else store.remove(Limit, limit.name)
    with monkeypatch.context() as fault:
        fault.setattr(relayout, "move_tasks", die)
        with pytest.raises(RuntimeError, match="died"):
            await changing
    survivor = store.another()
    worker = await worker_on(survivor)
    before = [one.task.id for one in await worker.claim(25, "q")]
    clock.advance(timedelta(minutes=2))
    await survivor.prune(KEPT, 100)
    await worker.beat(opening=True)

    assert len(before) == 25
    assert sorted([*before, *await claimed_by(worker)]) == sorted(task.id for task in new)
    assert await ask(store, "SELECT name FROM windlass.queue WHERE unsettled") == []
    await survivor.close()


# -- what is counted ---------------------------------------------------------------------------------


async def test_permits_of_tasks_that_ended_are_forgotten(store: PostgresStore, clock: ManualClock) -> None:
    await store.put(Limit(name="each", by="tenant", running=5, rate=2, burst=4))
    worker = await worker_on(store)
    for number in range(3):
        await enqueue_one(store, queue="q", tenant=f"t{number}")
    await settle_now(store, *map(complete, await worker.claim(5, "q")))
    before = await ask(store, "SELECT count(*) FROM windlass.permit")

    clock.advance(timedelta(minutes=2))
    await store.prune(KEPT, 100)

    assert before == [(3,)]
    assert await ask(store, "SELECT key FROM windlass.permit UNION SELECT key FROM windlass.bucket") == []


async def test_a_bucket_that_is_not_full_is_not_forgotten(store: PostgresStore, clock: ManualClock) -> None:
    await store.put(Limit(name="slow", queue="q", rate=0.001, burst=1))
    await store.enqueue(some_tasks(2, queue="q"))
    worker = await worker_on(store)
    await settle_now(store, *map(complete, await worker.claim(5, "q")))

    clock.advance(timedelta(minutes=10))
    await store.prune(KEPT, 100)
    await worker.beat(opening=True)

    assert await worker.claim(5, "q") == []


async def test_what_runs_keeps_its_permit_through_a_tidying(store: PostgresStore, clock: ManualClock) -> None:
    await store.put(ONE)
    await store.enqueue(some_tasks(2, queue="q"))
    worker = await worker_on(store)
    await worker.claim(1, "q")

    clock.advance(timedelta(days=2))
    await store.prune(KEPT, 100)
    await worker.beat(opening=True)

    assert await worker.claim(1, "q") == []
    assert [usage.running for usage in await all_records(store, Usage)] == [1]


async def test_completing_in_ones_own_transaction_gives_the_permit_back(store: PostgresStore) -> None:
    await store.put(ONE)
    await store.enqueue(some_tasks(2, queue="q"))
    worker = await worker_on(store)
    (first,) = await worker.claim(1, "q")

    async with store.transaction() as connection:
        await store.join(connection).settle([complete(first)])  # type: ignore[misc]  # asyncpg's is awaited
        within_it = await worker.claim(1, "q")

    assert [len(within_it), len(await worker.claim(1, "q"))] == [0, 1]
