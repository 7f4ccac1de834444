"""The work of one script is bounded, and nothing that is missing holds up the rest."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.stores.redis.conftest import Peek
from windlass._model.limit import Limit
from windlass._model.queue import Fairness, Level, QueueSettings, Retention
from windlass._stores.redis import RedisStore
from windlass._stores.redis.connection.link import Link
from windlass._stores.redis.keys import Keys
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    OPERATOR,
    a_task,
    complete,
    enqueue_and_claim,
    some_tasks,
    worker_on,
)

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@pytest.fixture
def keys(store: RedisStore) -> Keys:
    return Keys(store.address.name)


@pytest.fixture
def scripts_run(peek: Peek) -> Callable[[], int]:
    """How many scripts the server has run."""

    def count() -> int:
        lines = peek("INFO", "commandstats")
        return sum(lines[f"cmdstat_{name}"]["calls"] for name in ("eval", "evalsha"))

    return count


async def test_a_claim_passes_over_expired_tasks_some_at_a_time(
    store: RedisStore, clock: ManualClock, scripts_run: Callable[[], int]
) -> None:
    worker = await worker_on(store, lease_for=DAY)
    await store.enqueue([a_task(expires_in=SECOND) for _ in range(1_200)])
    fresh = a_task()
    await store.enqueue([fresh])
    clock.advance(2)
    before = scripts_run()

    claimed = await worker.claim(10)

    assert [one.task.id for one in claimed] == [fresh.id]
    assert scripts_run() - before >= 3


async def test_a_claim_with_settlements_says_that_it_did_not_look_at_all_tasks(
    store: RedisStore, clock: ManualClock
) -> None:
    worker = await worker_on(store, lease_for=DAY)
    held = await enqueue_and_claim(store, worker)
    await store.enqueue([a_task(expires_in=SECOND) for _ in range(700)])
    clock.advance(2)

    settled = await store.settle([complete(held)], worker.next_claim(10))
    again = await store.settle([], worker.next_claim(10))

    assert (settled.claimed, settled.may_claim_more) == ((), True)
    assert (again.claimed, again.may_claim_more) == ((), False)


async def test_a_limit_of_more_queues_than_fit_one_command_is_stored_as_a_whole(
    store: RedisStore, peek: Peek, keys: Keys
) -> None:
    """Lua refuses a command with more than some 8,000 arguments, halfway through the commit."""
    peek("SADD", keys.groups, *(f"ready\x1fq{number}\x1ftype\x1f" for number in range(9_000)))
    await store.enqueue(some_tasks(3, queue="q7"))

    await store.put(Limit(name="calls", running=2), OPERATOR)

    assert len(await (await worker_on(store)).claim(3, "q7")) == 2
    assert peek("SCARD", keys.relayout) == 0


async def test_tasks_of_many_tenants_move_to_their_new_places_together(
    store: RedisStore, scripts_run: Callable[[], int]
) -> None:
    """Not tenant by tenant: with 100,000 of them that took a minute."""
    await store.enqueue([a_task(queue="q", tenant=f"t{number}") for number in range(1_000)])
    before = scripts_run()

    await store.put(Limit(name="calls", by="tenant", running=1), OPERATOR)

    assert scripts_run() - before < 50
    assert len(await (await worker_on(store)).claim(9, "q")) == 9


async def test_a_claim_of_a_level_looks_at_some_tasks_of_each_tenant(
    store: RedisStore, scripts_run: Callable[[], int]
) -> None:
    await store.put(QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN), OPERATOR)
    for tenant in range(6):
        await store.enqueue([a_task(queue="q", tenant=f"t{tenant}") for _ in range(1_000)])
    urgent = a_task(queue="q", tenant="t5", priority=9)
    await store.enqueue([urgent])
    worker = await worker_on(store)
    before = scripts_run()

    claimed = await store.claim(replace(worker.next_claim(5, "q"), level=Level.HIGH))

    assert [one.task.id for one in claimed] == [urgent.id]
    assert scripts_run() - before < 20


async def test_a_random_claim_takes_few_round_trips_for_many_tenants(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(QueueSettings(name="q", fairness=Fairness.RANDOM), OPERATOR)
    await store.enqueue([a_task(queue="q", tenant=f"t{tenant}") for tenant in range(300)])
    worker, requests, request = await worker_on(store), list[int](), Link.request

    async def noted(link: Link, commands: Sequence[Any]) -> Any:
        requests.append(len(commands))
        return await request(link, commands)

    monkeypatch.setattr(Link, "request", noted)
    assert len(await worker.claim(5, "q")) == 5
    assert len(requests) < 20


async def test_buckets_are_pruned_some_at_a_time(
    store: RedisStore, clock: ManualClock, peek: Peek, keys: Keys, scripts_run: Callable[[], int]
) -> None:
    await store.put(Limit(name="calls", by="tenant", rate=1000.0), OPERATOR)
    full = f"0.0 {int((clock.now() - DAY).timestamp() * 1_000_000)}"
    empty = f"0.0 {int(clock.now().timestamp() * 1_000_000)}"
    for number in range(1_000):
        peek("HSET", keys.buckets, f"calls\x1ft{number}", full if number else empty)
    before = scripts_run()

    await store.prune(Retention(), 10)

    assert peek("HKEYS", keys.buckets) == [b"calls\x1ft0"]
    assert scripts_run() - before >= 5


async def test_scheduled_tasks_whose_keys_were_deleted_do_not_hold_up_others(
    store: RedisStore, clock: ManualClock, peek: Peek, keys: Keys
) -> None:
    deleted = [a_task(delay=SECOND) for _ in range(250)]
    await store.enqueue(deleted)
    peek("DEL", *(keys.task(one.id) for one in deleted))
    await store.enqueue([a_task(delay=2 * SECOND)])
    clock.advance(3)

    promoted = await store.promote(1_000)

    assert (promoted.number, promoted.next_at) == (1, None)
    assert peek("ZCARD", keys.scheduled) == 0
