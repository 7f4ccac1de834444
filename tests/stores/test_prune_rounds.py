"""A prune looks at a part of many tasks in a transaction, in SQLite and in what is built on it."""

import asyncio
from datetime import timedelta

import pytest

from windlass._model.queue import Retention
from windlass._store.protocol import Store
from windlass._stores.sqlite import upkeep as keeping
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task, all_tasks, complete, enqueue_and_settle, worker_on


@pytest.mark.parametrize("factory", ["sqlite", "jetstream"], indirect=True)
async def test_tasks_that_ended_at_one_instant_and_are_needed_hide_none_behind_them(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "NEEDED_AT_ONCE", 2)
    worker = await worker_on(store, lease_for=timedelta(days=9))
    done = [(await enqueue_and_settle(store, worker, complete, queue="default")).task.id for _ in range(12)]
    await store.enqueue([a_task(after=tuple(done[:5] + done[6:11]), result_into="results")])
    clock.advance(timedelta(days=2))
    short = Retention(completed=timedelta(days=1))

    async with asyncio.timeout(20):
        assert [(await store.prune(short, limit=1)).number for _ in range(4)] == [1, 1, 0, 0]

    await store.settle([complete(await worker.claim_one("default"))])
    clock.advance(timedelta(days=2))
    assert [(await store.prune(short, limit=4)).number for _ in range(4)] == [4, 4, 3, 0]
    assert await all_tasks(store) == []
