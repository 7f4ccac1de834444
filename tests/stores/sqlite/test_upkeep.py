"""What the keeper deletes, in steps that leave others their turn."""

import asyncio
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


async def test_a_prune_passes_needed_tasks_and_deletes_those_behind_them(
    store: SQLiteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many joins may need tasks for long; those behind them are found, a few looks at a time."""
    monkeypatch.setattr(keeping, "NEEDED_AT_ONCE", 2)
    worker = await worker_on(store, lease_for=timedelta(days=9))
    done = []
    for number in range(20):
        queue = "mail" if number % 2 else "default"
        done.append((await enqueue_and_settle(store, worker, complete, queue=queue)).task.id)
        clock.advance(1)
    last = a_task(after=tuple(done[:17]), result_into="results")
    await store.enqueue([last])
    clock.advance(timedelta(days=2))
    short = Retention(completed=timedelta(days=1))

    assert [(await store.prune(short, limit=1)).number for _ in range(4)] == [1, 1, 1, 0]

    await store.settle([complete(await worker.claim_one("default"))])
    clock.advance(timedelta(days=2))
    assert [(await store.prune(short, limit=3)).number for _ in range(7)] == [3, 3, 3, 3, 3, 3, 0]
    assert await all_tasks(store) == []


@pytest.mark.parametrize("kept", [None, timedelta(days=3)])
async def test_a_prune_ends_although_what_it_was_looking_at_is_gone(
    store: SQLiteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kept: timedelta | None
) -> None:
    monkeypatch.setattr(keeping, "NEEDED_AT_ONCE", 1)
    worker = await worker_on(store, lease_for=timedelta(days=9))
    done = []
    for _ in range(6):
        done.append((await enqueue_and_settle(store, worker, complete, queue="default")).task.id)
        clock.advance(1)
    await store.enqueue([a_task(after=tuple(done[:4]), result_into="results")])
    clock.advance(timedelta(days=2))
    short = Retention(completed=timedelta(days=1))
    assert (await store.prune(short, limit=1)).number == 1

    assert store._prune_round.has_begun

    async with asyncio.timeout(5):
        assert (await store.prune(Retention(completed=kept), limit=1)).number == 0


async def test_a_prune_goes_on_behind_what_the_one_before_has_looked_at(
    store: SQLiteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind has its own place, and keeps it when another uses up the limit."""
    monkeypatch.setattr(keeping, "NEEDED_AT_ONCE", 2)
    worker = await worker_on(store, lease_for=timedelta(days=9))
    done: dict[str, list[str]] = {"a": [], "b": []}
    for queue, ids in done.items():
        ids += [(await enqueue_and_settle(store, worker, complete, queue=queue)).task.id for _ in range(6)]
    needed = (*done["a"][:4], *done["b"])
    await store.enqueue([a_task(after=needed, result_into="results")])
    clock.advance(timedelta(days=2))
    short = Retention(completed=timedelta(days=1))

    def reached() -> dict[str, int]:
        return {queue: rowid for (queue, *_), (_, rowid) in store._prune_round.reached.items()}

    assert (await store.prune(short, limit=1)).number == 1
    assert reached() == {"a": 5, "b": 9}
    assert (await store.prune(short, limit=1)).number == 1
    assert reached() == {"a": 6, "b": 9}
    assert (await store.prune(short, limit=1)).number == 0
    assert reached() == {}
