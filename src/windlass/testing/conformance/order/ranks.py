"""Ageing: what a priority is worth is a setting of the queue, and applies to whatever waits in it."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ...._model.filter import Filter, Replay
from ...._model.queue import Fairness, Ordering, QueueSettings, Retention
from ...._model.task import TaskId
from ..steps import OPERATOR, ManualWorker, StoreTest, a_task, bury, complete, release, retry

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LOW, HIGH = -10, 10
STRICT = QueueSettings(name="default")


def aged(by: timedelta) -> QueueSettings:
    return replace(STRICT, ordering=Ordering(ageing=by))


class TestAgeing(StoreTest):
    @pytest.fixture(autouse=True)
    async def long_lived(self, worker: ManualWorker) -> None:
        await worker.beat(lease_for=timedelta(days=1))

    async def old_and_new(self) -> tuple[TaskId, TaskId]:
        """Enqueue a task of low priority and, two hours later, one of high priority."""
        old = await self.enqueue_one(priority=LOW)
        self.clock.advance(timedelta(hours=2))
        return old, await self.enqueue_one(priority=HIGH)

    async def claimed_order(self, worker: ManualWorker) -> Sequence[TaskId]:
        order = []
        while claimed := await worker.claim(1):
            order.append(claimed[0].task.id)
            await self.settle_now(complete(claimed[0]))
        return order

    async def test_a_priority_is_worth_its_ageing(self, worker: ManualWorker) -> None:
        await self.store.put(aged(MINUTE))
        old = await self.enqueue_one()
        self.clock.advance(59)
        overtaking = await self.enqueue_one(priority=1)
        self.clock.advance(2)
        too_late = await self.enqueue_one(priority=1)

        assert await self.claimed_order(worker) == [overtaking, old, too_late]

    async def test_ageing_applies_to_tasks_that_have_expired_too(self, worker: ManualWorker) -> None:
        expired = await self.enqueue_one(priority=HIGH, expires_in=MINUTE)
        self.clock.advance(MINUTE)
        assert not await worker.claim(1)
        strict = (await self.load(expired)).boost

        await self.store.put(aged(HOUR))

        assert (await self.load(expired)).boost < strict

    async def test_strict_order_knows_no_waiting(self, worker: ManualWorker) -> None:
        old, new = await self.old_and_new()

        assert await self.claimed_order(worker) == [new, old]

    async def test_ageing_set_while_a_producer_is_open_applies_to_its_next_task(
        self, worker: ManualWorker
    ) -> None:
        producer = self.store.another()
        await producer.open()
        try:
            await producer.enqueue([a_task(priority=HIGH)])
            await worker.claim(1)
            await self.store.put(aged(MINUTE))
            old = a_task(priority=LOW)
            await producer.enqueue([old])
            self.clock.advance(timedelta(hours=2))
            new = a_task(priority=HIGH)
            await producer.enqueue([new])
            await self.store.prune(Retention(), 10)  # as the keeper does, for what was on its way

            assert await self.claimed_order(worker) == [old.id, new.id]
        finally:
            await producer.close()

    @pytest.mark.parametrize("fairness", list(Fairness))
    async def test_a_change_ranks_what_waits(self, worker: ManualWorker, fairness: Fairness) -> None:
        await self.store.put(replace(STRICT, fairness=fairness))
        old, new = await self.old_and_new()
        await self.store.put(replace(aged(MINUTE), fairness=fairness))

        assert await self.claimed_order(worker) == [old, new]

    async def test_another_ageing_ranks_what_waits(self, worker: ManualWorker) -> None:
        await self.store.put(aged(MINUTE))
        old, new = await self.old_and_new()
        await self.store.put(aged(HOUR))

        assert await self.claimed_order(worker) == [new, old]

    @pytest.mark.parametrize("remove", [False, True])
    async def test_back_to_strict_order(self, worker: ManualWorker, *, remove: bool) -> None:
        await self.store.put(aged(MINUTE))
        old, new = await self.old_and_new()
        if remove:
            await self.store.remove(QueueSettings, "default")
        else:
            await self.store.put(STRICT)
        later = await self.enqueue_one(priority=LOW)

        assert await self.claimed_order(worker) == [new, old, later]

    async def test_many_tasks_are_ranked(self, worker: ManualWorker) -> None:
        low = [a_task(priority=LOW) for _ in range(1_100)]
        await self.store.enqueue(low)
        self.clock.advance(timedelta(hours=2))
        high = [a_task(priority=HIGH) for _ in range(1_100)]
        await self.store.enqueue(high)

        await self.store.put(aged(MINUTE))
        first = await worker.claim_ids(1_100)
        await self.store.put(STRICT)

        assert first == [new.id for new in low]
        assert await worker.claim_ids(2_000) == [new.id for new in high]

    async def test_a_scheduled_task_is_ranked_by_what_holds_when_it_is_due(
        self, worker: ManualWorker
    ) -> None:
        old = await self.enqueue_one(priority=LOW, delay=timedelta(seconds=1))
        new = await self.enqueue_one(priority=HIGH, delay=timedelta(hours=2))
        await self.store.put(aged(MINUTE))
        self.clock.advance(timedelta(hours=3))
        await self.store.promote(10)

        assert await self.claimed_order(worker) == [old, new]

    async def test_a_task_that_waited_for_another_is_ranked_by_what_holds_then(
        self, worker: ManualWorker
    ) -> None:
        first = a_task()
        old = a_task(priority=LOW, after=(first.id,))
        await self.store.enqueue([first, old])
        (claimed,) = await worker.claim(1)
        await self.store.put(aged(MINUTE))
        self.clock.advance(timedelta(hours=2))
        await self.settle_now(complete(claimed))
        new = await self.enqueue_one(priority=HIGH)

        assert await self.claimed_order(worker) == [old.id, new]

    @pytest.mark.parametrize("way", ["retry", "release", "replay"])
    async def test_a_task_that_comes_back_is_ranked_by_what_holds_then(
        self, worker: ManualWorker, way: str
    ) -> None:
        old = await self.enqueue_one(priority=LOW)
        (claimed,) = await worker.claim(1)
        await self.store.put(aged(MINUTE))
        end = {"retry": retry, "release": release, "replay": bury}[way]
        await self.settle_now(end(claimed))
        await self.store.apply(Replay(by=OPERATOR), Filter(ids=(old,)), 1)
        self.clock.advance(timedelta(hours=2))
        new = await self.enqueue_one(priority=HIGH)

        assert await self.claimed_order(worker) == [old, new]

    async def test_a_successor_is_ranked_by_its_own_queue(self, worker: ManualWorker) -> None:
        await self.store.put(aged(MINUTE))
        claimed = await self.enqueue_and_claim(worker, queue="first")
        old = a_task(priority=LOW)
        await self.settle_now(complete(claimed, None, old))
        self.clock.advance(timedelta(hours=2))
        new = await self.enqueue_one(priority=HIGH)

        assert await self.claimed_order(worker) == [old.id, new]

    async def test_other_queues_keep_their_order(self, worker: ManualWorker) -> None:
        await self.store.put(replace(aged(MINUTE), name="other"))
        old, new = await self.old_and_new()

        assert await self.claimed_order(worker) == [new, old]
