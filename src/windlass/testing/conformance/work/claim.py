"""Claim: order, due times, pauses; no task is claimed twice."""

import asyncio
from datetime import timedelta

import pytest

from ...._model.lease import Claimed
from ...._model.queue import Fairness, QueueSettings
from ...._model.state import State
from ...._model.task import TaskId
from ....errors import SessionLost
from ..steps import (
    FIELDS,
    LEASE,
    Ending,
    ManualWorker,
    StoreTest,
    a_task,
    bury,
    release,
    retry,
    some_tasks,
    worker_on,
)


class TestClaim(StoreTest):
    async def test_a_claim_counts_the_attempt_and_raises_the_fence(self) -> None:
        worker = await self.new_worker("w7")
        task_id = await self.enqueue_one()
        self.clock.advance(2)

        claimed = await worker.claim_one()

        task = claimed.task
        assert (task.id, task.state, task.attempt, task.fence) == (task_id, State.RUNNING, 1, 1)
        assert (task.session, task.worker, task.claimed_at) == (worker.session, "w7", self.clock.now())
        assert (claimed.lease.task_id, claimed.lease.fence) == (task_id, 1)
        assert await self.load(task_id) == task

    @pytest.mark.parametrize("field", FIELDS)
    async def test_a_claimed_task_is_as_it_was_enqueued(self, worker: ManualWorker, field: str) -> None:
        claimed = await self.enqueue_and_claim(worker, **{"idempotency_key": "key", field: FIELDS[field]})

        assert claimed.task == await self.load(claimed.task.id)

    async def test_a_claimed_task_is_not_claimed_again(self) -> None:
        first, second = await self.new_worker(), await self.new_worker()
        await self.enqueue_one()

        assert len(await first.claim()) == 1
        assert len(await second.claim()) == 0

    async def test_no_more_than_the_limit(self, worker: ManualWorker) -> None:
        await self.store.enqueue(some_tasks(5))

        assert [len(await worker.claim(limit)) for limit in (2, 0, 10, 10)] == [2, 0, 3, 0]

    async def test_only_the_requested_queues_are_claimed_from(self, worker: ManualWorker) -> None:
        batch = [a_task(queue=queue) for queue in ("a", "b", "c", "a")]
        await self.store.enqueue(batch)

        assert await worker.claim_ids(10, "a", "c", "nowhere", "a") == [batch[0].id, batch[2].id, batch[3].id]

    @pytest.mark.parametrize("end", [release, retry, bury])
    async def test_every_claim_counts_and_fences_only_rise(self, worker: ManualWorker, end: Ending) -> None:
        first = await self.enqueue_and_settle(worker, end)
        await self.replay(first.task.id)

        second = await worker.claim_one(first.task.queue)

        assert second.task.fence > first.task.fence
        assert second.task.attempt == (2 if end is retry else 1)

    async def test_a_crash_counts_because_the_claim_did(self, held: Claimed) -> None:
        _, rescued = await self.take_over(held)

        assert rescued.task.attempt == 1

    async def test_an_unknown_session_claims_nothing(self) -> None:
        await self.enqueue_one()

        async with self.refused(SessionLost):
            await ManualWorker(self.store).claim()

    async def test_an_expired_session_claims_nothing(self, worker: ManualWorker) -> None:
        await self.enqueue_one()
        self.clock.advance(LEASE)

        async with self.refused(SessionLost):
            await worker.claim()

    async def test_a_session_claims_until_the_very_end_of_its_lease(self, worker: ManualWorker) -> None:
        await self.enqueue_one()
        self.clock.advance(LEASE - timedelta(microseconds=1))

        assert len(await worker.claim()) == 1

    async def test_many_claimers_never_get_the_same_task(self) -> None:
        await self.store.enqueue(some_tasks(300))
        handles = [self.store.another() for _ in range(6)]
        for handle in handles:
            await handle.open()
        workers = [await worker_on(handle) for handle in handles for _ in range(2)]

        got: list[TaskId] = []

        async def drain(worker: ManualWorker) -> None:
            while claimed := await worker.claim(7):
                assert {one.task.session for one in claimed} == {worker.session}
                got.extend(one.task.id for one in claimed)
                await asyncio.sleep(0)

        await asyncio.gather(*(drain(worker) for worker in workers))
        for handle in handles:
            await handle.close()

        assert len(got) == len(set(got)) == 300
        assert {(task.attempt, task.fence) for task in await self.all_tasks()} == {(1, 1)}


class TestOrder(StoreTest):
    async def test_first_in_is_first_out_among_equals(self, worker: ManualWorker) -> None:
        batch = some_tasks(20)
        await self.store.enqueue(batch[10:])
        await self.store.enqueue(batch[:10])

        claimed = [*await worker.claim_ids(7), *await worker.claim_ids(20)]

        assert claimed == [new.id for new in batch]

    async def test_the_earlier_due_goes_first_whatever_its_id(self, worker: ManualWorker) -> None:
        late, early = some_tasks(2)
        await self.store.enqueue([a_task(id=early.id, run_at=self.clock.now() - timedelta(seconds=1)), late])

        assert await worker.claim_ids(2) == [early.id, late.id]

    async def test_within_a_millisecond_the_id_decides(self, worker: ManualWorker) -> None:
        early = self.clock.now() - timedelta(seconds=1)
        older, newer = (a_task(run_at=early + timedelta(microseconds=part)) for part in (900, 100))
        await self.store.enqueue([older, newer])

        assert await worker.claim_ids(2) == [older.id, newer.id]

    async def test_a_higher_priority_goes_first(self, worker: ManualWorker) -> None:
        low, plain, high = (a_task(priority=p) for p in (-100, 0, 100))
        await self.store.enqueue([low, plain, high])

        for expected in (high, plain, low):
            assert await worker.claim_ids() == [expected.id]

    async def test_several_queues_are_claimed_in_one_order(self, worker: ManualWorker) -> None:
        expected = []
        for step in range(6):
            expected.append(await self.enqueue_one(queue="ab"[step % 2], priority=-(step // 4)))
            self.clock.advance(1)
        first = await self.enqueue_one(queue="b", priority=1)

        claimed = [*await worker.claim_ids(4, "a", "b"), *await worker.claim_ids(9, "b", "a")]

        assert claimed == [first, *expected]

    async def test_thousands_of_queues_are_claimed_from_in_one_order(self, worker: ManualWorker) -> None:
        """A queue for each customer. A claim costs by the ready tasks, not by the queues that it names."""
        names = [f"customer-{number:04}" for number in range(5_000)]
        tasks = [a_task(queue=names[7 * number % 50 * 100]) for number in range(60)]
        await self.store.enqueue(tasks)

        async with asyncio.timeout(10):
            claimed = [*await worker.claim_ids(25, *names), *await worker.claim_ids(100, *names)]
            assert await worker.claim_ids(100, *names) == []

        assert claimed == [task.id for task in tasks]

    async def test_many_queues_are_claimed_in_one_order(self, worker: ManualWorker) -> None:
        queues = [f"q{number}" for number in range(200)]
        batch = [a_task(queue=queue, priority=-(step // 20)) for step, queue in enumerate(queues[:60] * 2)]
        await self.store.enqueue(batch[::-1])
        expected = [new.id for new in sorted(batch, key=lambda new: (-new.priority, new.id))]

        claimed = [await worker.claim_ids(limit, *reversed(queues)) for limit in (1, 30, 5, 200)]

        assert [one for some in claimed for one in some] == expected
        assert [len(some) for some in claimed] == [1, 30, 5, 84]

    async def test_of_many_queues_those_that_are_paused_or_expired_are_passed_over(
        self, worker: ManualWorker
    ) -> None:
        queues = [f"q{number}" for number in range(200)]
        await self.store.put(QueueSettings(name="q1", paused=True))
        until = self.clock.now() + timedelta(seconds=1)
        await self.store.enqueue([a_task(queue="q1"), *some_tasks(3, queue="q2", expires_at=until)])
        last = await self.enqueue_one(queue="q199")
        self.clock.advance(2)

        assert await worker.claim_ids(2, *queues) == [last]

    async def test_many_queues_of_which_some_are_fair_go_together(self, worker: ManualWorker) -> None:
        queues = [f"q{number}" for number in range(200)]
        for queue in ("q7", "q150"):
            await self.store.put(QueueSettings(name=queue, fairness=Fairness.ROUND_ROBIN))
        batch = [a_task(queue=queue, tenant=f"t{n}") for queue in ("q7", "q100", "q150") for n in range(2)]
        await self.store.enqueue(batch)

        first, rest = await worker.claim_ids(3, *queues), await worker.claim_ids(9, *queues)

        assert (len(first), len(rest)) == (3, 3)
        assert {*first, *rest} == {new.id for new in batch}

    async def test_a_released_task_keeps_its_rank(self, worker: ManualWorker) -> None:
        first = await self.enqueue_one()
        self.clock.advance(1)
        await self.enqueue_one()
        claimed = await worker.claim_one()
        self.clock.advance(1)

        await self.settle_now(release(claimed))

        assert (await worker.claim_one()).task.id == first

    async def test_a_retried_task_goes_to_the_end(self, worker: ManualWorker) -> None:
        first, second = await self.enqueue_one(), await self.enqueue_one()
        claimed = await worker.claim_one()
        assert claimed.task.id == first
        self.clock.advance(1)

        await self.settle_now(retry(claimed))

        assert await worker.claim_ids(2) == [second, first]


class TestDue(StoreTest):
    async def test_a_cancelled_task_never_starts(self, worker: ManualWorker) -> None:
        await self.cancel(await self.enqueue_one())

        assert len(await worker.claim(10)) == 0

    async def test_nothing_starts_early(self) -> None:
        worker = await self.new_worker(lease_for=timedelta(days=1))
        await self.enqueue_one(delay=timedelta(seconds=10))
        self.clock.advance(timedelta(seconds=10) - timedelta(microseconds=1))
        await self.store.promote(limit=10)
        assert len(await worker.claim()) == 0
        self.clock.advance(timedelta(microseconds=1))
        await self.store.promote(limit=10)

        assert len(await worker.claim()) == 1


class TestPause(StoreTest):
    async def test_a_paused_queue_is_not_claimed_from(self, worker: ManualWorker) -> None:
        await self.store.enqueue([a_task(queue="paused"), a_task(queue="open")])
        await self.store.put(QueueSettings(name="paused", paused=True))

        claimed = await worker.claim(10, "paused", "open")

        assert [one.task.queue for one in claimed] == ["open"]

    async def test_a_settle_does_not_claim_from_a_paused_queue(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        await self.enqueue_one(queue="paused")
        await self.store.put(QueueSettings(name="paused", paused=True))

        settled = await self.store.settle([release(held)], worker.next_claim(10, "paused"))

        assert settled.claimed == ()

    @pytest.mark.parametrize("how", ["put", "remove"])
    async def test_a_resumed_queue_is_claimed_from(self, worker: ManualWorker, how: str) -> None:
        await self.enqueue_one(queue="q")
        await self.store.put(QueueSettings(name="q", paused=True))
        if how == "put":
            await self.store.put(QueueSettings(name="q"))
        else:
            assert await self.store.remove(QueueSettings, "q")

        assert len(await worker.claim(1, "q")) == 1

    async def test_a_paused_queue_still_takes_tasks_and_settlements(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker, queue="q")
        await self.store.put(QueueSettings(name="q", paused=True))

        await self.enqueue_one(queue="q")
        await self.settle_now(release(held))

        assert {task.state for task in await self.all_tasks()} == {State.READY}
