"""Marks (`ctx.once`): of all leases on a task, only the first to mark a key is first."""

import pytest

from ...._model.lease import Lease
from ...._model.queue import Retention
from ...._store.protocol import Store
from ....errors import LeaseLost
from ...clock import ManualClock
from ..steps import (
    NO_DELAY,
    a_task,
    bury,
    complete,
    discard,
    dump,
    enqueue_and_claim,
    release,
    replay,
    retry,
    settle_now,
    snooze,
    take_over,
    worker_on,
)

WAYS_BACK = {"retry": retry, "snooze": snooze, "release": release}


class TestOnce:
    async def test_the_first_mark_of_each_key_is_reported_as_first(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))

        assert await store.once(held.lease, "charge")
        assert await store.once(held.lease, "mail")

    @pytest.mark.parametrize("way", WAYS_BACK)
    async def test_the_next_attempt_is_not_the_first(self, store: Store, way: str) -> None:
        worker = await worker_on(store)
        first = await enqueue_and_claim(store, worker)
        await store.once(first.lease, "charge")
        await settle_now(store, WAYS_BACK[way](first))
        second = await worker.claim_one(first.task.queue)

        assert not await store.once(second.lease, "charge")
        assert await store.once(second.lease, "mail")

    async def test_repeating_a_mark_after_a_lost_reply_is_harmless(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))

        assert [await store.once(held.lease, "charge") for _ in range(3)] == [True] * 3

    async def test_each_task_has_marks_of_its_own(self, store: Store) -> None:
        worker = await worker_on(store)
        one, other = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)

        assert await store.once(one.lease, "charge")
        assert await store.once(other.lease, "charge")

    async def test_a_rescued_task_remembers_what_was_marked(self, store: Store, clock: ManualClock) -> None:
        stalled = await enqueue_and_claim(store, await worker_on(store))
        await store.once(stalled.lease, "charge")

        _, rescued = await take_over(store, clock, stalled)

        assert not await store.once(rescued.lease, "charge")

    async def test_a_stalled_worker_can_mark_nothing(self, store: Store, clock: ManualClock) -> None:
        stalled = await enqueue_and_claim(store, await worker_on(store))
        _, rescued = await take_over(store, clock, stalled)
        before = await dump(store)

        with pytest.raises(LeaseLost):
            await store.once(stalled.lease, "charge")

        assert await dump(store) == before
        assert await store.once(rescued.lease, "charge")

    async def test_a_lease_that_has_ended_marks_nothing(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        await settle_now(store, complete(held))

        with pytest.raises(LeaseLost):
            await store.once(held.lease, "charge")
        with pytest.raises(LeaseLost):
            await store.once(Lease(a_task().id, 1), "charge")

    async def test_a_replay_does_not_make_it_the_first_time_again(self, store: Store) -> None:
        worker = await worker_on(store)
        first = await enqueue_and_claim(store, worker)
        await store.once(first.lease, "charge")
        await settle_now(store, bury(first))
        await replay(store, first.task.id)
        again = await worker.claim_one(first.task.queue)

        assert not await store.once(again.lease, "charge")

    @pytest.mark.parametrize("way", ["discard", "prune"])
    async def test_marks_go_with_the_tasks_record(self, store: Store, clock: ManualClock, way: str) -> None:
        worker = await worker_on(store)
        await settle_now(store, release(first := await enqueue_and_claim(store, worker)))
        second = await worker.claim_one(first.task.queue)  # A fence that a new task does not start with.
        await store.once(second.lease, "charge")
        await settle_now(store, bury(second))
        clock.advance(1)
        if way == "discard":
            await discard(store, first.task.id)
        else:
            assert await store.prune(Retention(dead=NO_DELAY), limit=10) == 1

        anew = await enqueue_and_claim(store, worker, id=first.task.id)

        assert await store.once(anew.lease, "charge")

    async def test_a_key_is_any_text(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))

        for key in ("a'b", "ü 🐎", "x" * 255, "%_\\"):
            assert await store.once(held.lease, key)
