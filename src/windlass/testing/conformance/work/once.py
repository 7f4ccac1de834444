"""Marks (`ctx.once`): of all leases on a task, only the first to mark a key is first."""

import pytest

from ...._model.lease import Claimed, Lease
from ...._model.queue import Retention
from ....errors import LeaseLost
from ..steps import ENDINGS, NO_DELAY, ManualWorker, StoreTest, a_task, bury, complete, release


class TestOnce(StoreTest):
    async def test_the_first_mark_of_each_key_is_reported_as_first(self, held: Claimed) -> None:
        assert await self.store.once(held.lease, "charge")
        assert await self.store.once(held.lease, "mail")

    @pytest.mark.parametrize("way", ["retry", "snooze", "release"])
    async def test_the_next_attempt_is_not_the_first(
        self, worker: ManualWorker, held: Claimed, way: str
    ) -> None:
        await self.store.once(held.lease, "charge")
        await self.settle_now(ENDINGS[way](held))
        second = await worker.claim_one(held.task.queue)

        assert not await self.store.once(second.lease, "charge")
        assert await self.store.once(second.lease, "mail")

    async def test_repeating_a_mark_after_a_lost_reply_is_harmless(self, held: Claimed) -> None:
        assert [await self.store.once(held.lease, "charge") for _ in range(3)] == [True] * 3

    async def test_each_task_has_marks_of_its_own(self, worker: ManualWorker) -> None:
        one, other = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)

        assert await self.store.once(one.lease, "charge")
        assert await self.store.once(other.lease, "charge")

    async def test_a_rescued_task_remembers_what_was_marked(self, held: Claimed) -> None:
        await self.store.once(held.lease, "charge")

        _, rescued = await self.take_over(held)

        assert not await self.store.once(rescued.lease, "charge")

    async def test_a_stalled_worker_can_mark_nothing(self, held: Claimed) -> None:
        _, rescued = await self.take_over(held)

        async with self.refused(LeaseLost):
            await self.store.once(held.lease, "charge")

        assert await self.store.once(rescued.lease, "charge")

    async def test_a_lease_that_has_ended_marks_nothing(self, held: Claimed) -> None:
        await self.settle_now(complete(held))

        for lease in (held.lease, Lease(a_task().id, 1)):
            with pytest.raises(LeaseLost):
                await self.store.once(lease, "charge")

    async def test_a_replay_does_not_make_it_the_first_time_again(self, worker: ManualWorker) -> None:
        first = await self.enqueue_and_claim(worker)
        await self.store.once(first.lease, "charge")
        await self.settle_now(bury(first))
        await self.replay(first.task.id)
        again = await worker.claim_one(first.task.queue)

        assert not await self.store.once(again.lease, "charge")

    @pytest.mark.parametrize("way", ["discard", "prune"])
    async def test_marks_go_with_the_tasks_record(self, worker: ManualWorker, way: str) -> None:
        first = await self.enqueue_and_settle(worker, release)
        second = await worker.claim_one(first.task.queue)  # A fence that a new task does not start with.
        await self.store.once(second.lease, "charge")
        await self.settle_now(bury(second))
        self.clock.advance(1)
        if way == "discard":
            await self.discard(first.task.id)
        else:
            assert (await self.store.prune(Retention(dead=NO_DELAY), limit=10)).number == 1

        anew = await self.enqueue_and_claim(worker, id=first.task.id)

        assert await self.store.once(anew.lease, "charge")

    async def test_a_key_is_any_text(self, held: Claimed) -> None:
        for key in ("a'b", "ü 🐎", "x" * 255, "%_\\"):
            assert await self.store.once(held.lease, key)
