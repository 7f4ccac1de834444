"""Promote: what is due becomes ready, earliest first and never early."""

from datetime import timedelta

import msgspec
import pytest

from ...._model.filter import Filter, Replay
from ...._model.lease import Claimed
from ...._model.record import Audit
from ...._model.state import State
from ...._model.task import MAX_DELAY
from ...._store.protocol import Promoted
from ..steps import OPERATOR, ManualWorker, StoreTest, a_task, bury, retry, stop


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


class TestSpreadReplay(StoreTest):
    """Replayed tasks become due one after another, and the keeper promotes them."""

    async def test_replayed_tasks_can_become_due_one_after_another(self, worker: ManualWorker) -> None:
        ids = [(await self.enqueue_and_settle(worker, bury, queue="q")).task.id for _ in range(4)]
        now = self.clock.now()
        spread = Replay(by=OPERATOR, run_at=now, interval=timedelta(seconds=10))

        applied = await self.store.apply(spread, Filter(ids=tuple(ids)), limit=3)

        tasks = [await self.load(task_id) for task_id in ids]
        assert list(applied.ids) == ids[:3]
        assert [task.state for task in tasks] == [State.READY, State.SCHEDULED, State.SCHEDULED, State.DEAD]
        assert [task.run_at - now for task in tasks[:3]] == [timedelta(seconds=10 * n) for n in range(3)]
        assert {(task.attempt, task.finished_at) for task in tasks[:3]} == {(0, None)}
        details = [msgspec.json.decode(line.detail) for line in await self.all_records(Audit)]
        assert [detail["run_at"] for detail in details] == [task.run_at.isoformat() for task in tasks[:3]]

    async def test_they_become_ready_as_the_keeper_promotes_them(self, worker: ManualWorker) -> None:
        ids = [(await self.enqueue_and_settle(worker, bury, queue="q")).task.id for _ in range(3)]
        spread = Replay(by=OPERATOR, run_at=self.clock.now(), interval=timedelta(seconds=1))
        await self.act(spread, *ids)

        claimed = []
        for _ in range(3):
            claimed.append(await worker.claim_ids(3, "q"))
            self.clock.advance(1)
            await self.store.promote(10)

        assert claimed == [[task_id] for task_id in ids]

    async def test_a_cancelled_task_can_be_due_later_too(self, held: Claimed) -> None:
        await self.settle_now(stop(held))

        await self.act(Replay(by=OPERATOR, run_at=self.clock.now() + timedelta(hours=1)), held.task.id)

        task = await self.load(held.task.id)
        assert (task.state, task.run_at) == (State.SCHEDULED, self.clock.now() + timedelta(hours=1))

    @pytest.mark.parametrize("ago", [timedelta(0), timedelta(days=400_000)])
    async def test_what_would_have_been_due_before_is_due_now(self, held: Claimed, ago: timedelta) -> None:
        await self.settle_now(bury(held))

        await self.act(Replay(by=OPERATOR, run_at=self.clock.now() - ago), held.task.id)

        task = await self.load(held.task.id)
        assert (task.state, task.run_at) == (State.READY, self.clock.now())

    async def test_none_is_due_later_than_any_task_may_be(self, worker: ManualWorker) -> None:
        ids = [(await self.enqueue_and_settle(worker, bury)).task.id for _ in range(3)]
        far = self.clock.now() + timedelta(days=400_000)

        await self.act(Replay(by=OPERATOR, run_at=far, interval=MAX_DELAY), *ids)

        assert {(await self.load(one)).run_at for one in ids} == {self.clock.now() + MAX_DELAY}
