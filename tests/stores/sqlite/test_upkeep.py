"""What the keeper deletes, in steps that leave others their turn."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from windlass._model.queue import Retention
from windlass._stores.sqlite import SQLiteStore
from windlass._stores.sqlite import upkeep as keeping
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task, all_tasks, complete, enqueue_and_settle, worker_on

Peek = Callable[..., list[tuple[object, ...]]]
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("number", [3, 4, 5])
async def test_expired_keys_go_a_few_at_a_time_until_none_is_left(
    store: SQLiteStore, clock: ManualClock, peek: Peek, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(keeping, "KEYS_AT_ONCE", 2)
    await store.enqueue([a_task(idempotency_key=f"k{n}", idempotency_for=HOUR) for n in range(number)])
    clock.advance(HOUR)

    await store.prune(Retention(), limit=1)

    assert peek("SELECT count(*) FROM windlass_idempotency") == [(0,)]


async def test_a_prune_looks_at_some_of_many_needed_tasks_and_the_next_at_the_others(
    store: SQLiteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many joins may need tasks for long; others behind them are pruned all the same, a few at a time."""
    monkeypatch.setattr(keeping, "NEEDED_AT_ONCE", 2)
    worker = await worker_on(store, lease_for=timedelta(days=9))
    done = []
    for _ in range(10):
        done.append((await enqueue_and_settle(store, worker, complete, queue="default")).task.id)
        clock.advance(1)
    last = a_task(after=tuple(done[:9]), result_into="results")
    await store.enqueue([last])
    clock.advance(timedelta(days=2))
    short = Retention(completed=timedelta(days=1))

    numbers = [(await store.prune(short, limit=1)).number for _ in range(5)]

    assert numbers == [0, 0, 0, 0, 1]
    await store.settle([complete(await worker.claim_one("default"))])
    clock.advance(timedelta(days=2))
    numbers = [(await store.prune(short, limit=1)).number for _ in range(20)]
    assert sum(numbers) == 10
    assert await all_tasks(store) == []
