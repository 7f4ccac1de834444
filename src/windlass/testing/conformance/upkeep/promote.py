"""Promote: what is due becomes ready, earliest first and never early."""

from datetime import timedelta

from ...._model.state import State
from ...._store.protocol import Promoted
from ..steps import StoreTest, a_task, retry


class TestPromote(StoreTest):
    async def test_due_tasks_become_ready(self) -> None:
        due = [await self.enqueue_one(delay=timedelta(seconds=seconds)) for seconds in (1, 2)]
        later = await self.enqueue_one(delay=timedelta(seconds=3))
        self.clock.advance(2)

        promoted = await self.store.promote(limit=10)

        assert promoted == Promoted(number=2, next_at=self.clock.now() + timedelta(seconds=1))
        assert [await self.state_of(task_id) for task_id in due] == [State.READY, State.READY]
        assert await self.state_of(later) is State.SCHEDULED

    async def test_nothing_is_promoted_early(self) -> None:
        run_at = self.clock.now() + timedelta(seconds=1)
        await self.enqueue_one(run_at=run_at)
        self.clock.advance(timedelta(seconds=1) - timedelta(microseconds=1))

        assert await self.store.promote(limit=10) == Promoted(number=0, next_at=run_at)

    async def test_without_scheduled_tasks_there_is_no_next(self) -> None:
        await self.enqueue_one()

        assert await self.store.promote(limit=10) == Promoted(number=0, next_at=None)

    async def test_the_limit_promotes_the_earliest_and_returns_the_next(self) -> None:
        start = self.clock.now()
        batch = [a_task(run_at=start + timedelta(seconds=seconds)) for seconds in (4, 2, 3, 1)]
        await self.store.enqueue(batch)
        self.clock.advance(60)

        first = await self.store.promote(limit=2)
        ready = [task.run_at for task in await self.all_tasks() if task.state is State.READY]
        second = await self.store.promote(limit=2)

        assert first == Promoted(number=2, next_at=start + timedelta(seconds=3))
        assert sorted(ready) == [start + timedelta(seconds=1), start + timedelta(seconds=2)]
        assert second == Promoted(number=2)

    async def test_a_promoted_task_keeps_its_due_time_and_so_its_rank(self) -> None:
        worker = await self.new_worker(lease_for=timedelta(days=1))
        scheduled = await self.enqueue_one(delay=timedelta(seconds=5))
        self.clock.advance(10)
        await self.enqueue_one()

        await self.store.promote(limit=10)

        assert (await worker.claim_one()).task.id == scheduled

    async def test_a_retry_is_promoted_when_its_delay_is_over(self) -> None:
        worker = await self.new_worker(lease_for=timedelta(days=1))
        claimed = await self.enqueue_and_claim(worker)
        await self.settle_now(retry(claimed, timedelta(seconds=5)))
        self.clock.advance(5)

        assert (await self.store.promote(limit=10)).number == 1
        assert (await worker.claim_one(claimed.task.queue)).task.attempt == 2

    async def test_a_cancelled_task_is_not_promoted(self) -> None:
        task_id = await self.enqueue_one(delay=timedelta(seconds=5))
        await self.cancel(task_id)
        self.clock.advance(5)
        before = await self.load(task_id)

        assert await self.store.promote(limit=10) == Promoted(number=0, next_at=None)
        assert await self.load(task_id) == before
