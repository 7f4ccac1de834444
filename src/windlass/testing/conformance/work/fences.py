"""Fences: only the newest lease settles a task, once; a stale lease changes nothing, a repeat is harmless."""

import pytest

from ...._model.lease import Claimed, Lease
from ...._model.state import State
from ...._model.verdict import Receipt
from ..steps import (
    ENDINGS,
    LEASE,
    ManualWorker,
    StoreTest,
    a_task,
    bury,
    complete,
    release,
    retry,
    snooze,
    stop,
)

every_ending = pytest.mark.parametrize("ending", ENDINGS)


class TestFences(StoreTest):
    @every_ending
    async def test_a_stalled_workers_late_settle_changes_nothing(self, held: Claimed, ending: str) -> None:
        await self.take_over(held)

        async with self.unchanged():
            assert await self.settle(ENDINGS[ending](held)) == (Receipt.LOST,)

    @every_ending
    async def test_a_late_settle_does_not_affect_the_next_attempt(self, held: Claimed, ending: str) -> None:
        rescuer, rescued = await self.take_over(held)
        await self.settle_now(retry(rescued))
        await rescuer.claim_one(held.task.queue)

        async with self.unchanged():
            assert await self.settle(ENDINGS[ending](held), ENDINGS[ending](rescued)) == (Receipt.LOST,) * 2

    @every_ending
    async def test_an_old_lease_is_invalid_after_a_snooze(self, worker: ManualWorker, ending: str) -> None:
        snoozed = await self.enqueue_and_settle(worker, snooze)
        again = await worker.claim_one(snoozed.task.queue)
        assert again.task.attempt == snoozed.task.attempt

        async with self.unchanged():
            assert await self.settle(ENDINGS[ending](snoozed)) == (Receipt.LOST,)

    @every_ending
    async def test_an_old_lease_is_invalid_after_a_replay(self, worker: ManualWorker, ending: str) -> None:
        buried = await self.enqueue_and_settle(worker, bury)
        await self.replay(buried.task.id)
        again = await worker.claim_one(buried.task.queue)
        assert again.task.attempt == buried.task.attempt

        async with self.unchanged():
            assert await self.settle(ENDINGS[ending](buried)) == (Receipt.LOST,)

    @every_ending
    async def test_repeating_a_settle_is_harmless(self, held: Claimed, ending: str) -> None:
        done = ENDINGS[ending](held)
        await self.settle_now(done)

        async with self.unchanged():
            self.clock.advance(1)
            assert await self.settle(done, done) == (Receipt.REPEATED, Receipt.REPEATED)

    async def test_the_same_settlement_twice_in_a_batch_applies_once(self, held: Claimed) -> None:
        assert await self.settle(retry(held), retry(held)) == (Receipt.APPLIED, Receipt.REPEATED)
        assert len(await self.store.attempts(held.task.id)) == 1

    @pytest.mark.parametrize("first", ["complete", "bury", "cancel"])
    @every_ending
    async def test_an_ended_task_cannot_be_settled_otherwise(
        self, held: Claimed, first: str, ending: str
    ) -> None:
        await self.settle_now(ENDINGS[first](held))

        async with self.unchanged():
            assert await self.settle(ENDINGS[ending](held)) == (Receipt.REPEATED,)

    @every_ending
    async def test_an_unknown_fence_settles_nothing(self, held: Claimed, ending: str) -> None:
        async with self.unchanged():
            for fence in (held.task.fence - 1, held.task.fence + 1):
                assert await self.settle(ENDINGS[ending](Lease(held.task.id, fence))) == (Receipt.LOST,)

    async def test_settling_a_deleted_task_changes_nothing(self) -> None:
        async with self.unchanged():
            (receipt,) = await self.settle(complete(Lease(a_task().id, 1), None, a_task()))
            assert receipt is not Receipt.APPLIED

    async def test_an_expired_session_can_settle_tasks_not_taken_over(self, held: Claimed) -> None:
        self.clock.advance(LEASE * 2)

        assert await self.settle(complete(held)) == (Receipt.APPLIED,)
        assert await self.state_of(held.task.id) is State.COMPLETED

    async def test_fences_only_rise(self, worker: ManualWorker) -> None:
        leases = [await self.enqueue_and_claim(worker)]
        queue = leases[0].task.queue
        for ending in (snooze, release, retry, bury, stop):
            await self.settle_now(ending(leases[-1]))
            await self.replay(leases[0].task.id)
            leases.append(await worker.claim_one(queue))
        await worker.beat(through=worker.claims)
        leases.append(await worker.claim_one(queue))
        _, rescued = await self.take_over(leases[-1])

        fences = [one.task.fence for one in (*leases, rescued)]
        assert len(fences) == 8
        assert fences == sorted(set(fences))
