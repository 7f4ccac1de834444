"""Promote: what is due becomes ready, earliest first and never early."""

from datetime import timedelta

from ...._model.state import State
from ...._store.protocol import Store
from ...clock import ManualClock
from ..steps import (
    a_task,
    all_tasks,
    cancel,
    enqueue_and_claim,
    enqueue_one,
    load,
    retry,
    settle_now,
    state_of,
    worker_on,
)


class TestPromote:
    async def test_due_tasks_become_ready(self, store: Store, clock: ManualClock) -> None:
        due = [await enqueue_one(store, delay=timedelta(seconds=seconds)) for seconds in (1, 2)]
        later = await enqueue_one(store, delay=timedelta(seconds=3))
        clock.advance(2)

        promoted = await store.promote(limit=10)

        assert promoted.number == 2
        assert promoted.next_at == clock.now() + timedelta(seconds=1)
        assert [await state_of(store, task_id) for task_id in due] == [State.READY, State.READY]
        assert await state_of(store, later) is State.SCHEDULED

    async def test_nothing_is_promoted_early(self, store: Store, clock: ManualClock) -> None:
        run_at = clock.now() + timedelta(seconds=1)
        await enqueue_one(store, run_at=run_at)
        clock.advance(timedelta(seconds=1) - timedelta(microseconds=1))

        promoted = await store.promote(limit=10)

        assert (promoted.number, promoted.next_at) == (0, run_at)

    async def test_without_scheduled_tasks_there_is_no_next(self, store: Store) -> None:
        await enqueue_one(store)

        promoted = await store.promote(limit=10)

        assert (promoted.number, promoted.next_at) == (0, None)

    async def test_the_limit_promotes_the_earliest_and_returns_the_next(
        self, store: Store, clock: ManualClock
    ) -> None:
        start = clock.now()
        batch = [a_task(run_at=start + timedelta(seconds=seconds)) for seconds in (4, 2, 3, 1)]
        await store.enqueue(batch)
        clock.advance(60)

        first = await store.promote(limit=2)
        ready = [task.run_at for task in await all_tasks(store) if task.state is State.READY]
        second = await store.promote(limit=2)

        assert (first.number, first.next_at) == (2, start + timedelta(seconds=3))
        assert sorted(ready) == [start + timedelta(seconds=1), start + timedelta(seconds=2)]
        assert (second.number, second.next_at) == (2, None)

    async def test_a_promoted_task_keeps_its_due_time_and_so_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store, lease_for=timedelta(days=1))
        scheduled = await enqueue_one(store, delay=timedelta(seconds=5))
        clock.advance(10)
        await enqueue_one(store)

        await store.promote(limit=10)

        assert (await worker.claim_one()).task.id == scheduled

    async def test_a_retry_is_promoted_when_its_delay_is_over(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store, lease_for=timedelta(days=1))
        claimed = await enqueue_and_claim(store, worker)
        await settle_now(store, retry(claimed, timedelta(seconds=5)))
        clock.advance(5)

        assert (await store.promote(limit=10)).number == 1
        assert (await worker.claim_one(claimed.task.queue)).task.attempt == 2

    async def test_a_cancelled_task_is_not_promoted(self, store: Store, clock: ManualClock) -> None:
        task_id = await enqueue_one(store, delay=timedelta(seconds=5))
        await cancel(store, task_id)
        clock.advance(5)
        before = await load(store, task_id)

        promoted = await store.promote(limit=10)

        assert (promoted.number, promoted.next_at) == (0, None)
        assert await load(store, task_id) == before
