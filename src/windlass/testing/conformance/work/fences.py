"""Fences: only the newest lease settles a task, once; a stale lease changes nothing, a repeat is harmless."""

import pytest

from ...._model.lease import Lease
from ...._model.state import State
from ...._model.verdict import Receipt
from ...._store.protocol import Store
from ...clock import ManualClock
from ..steps import (
    ENDINGS,
    LEASE,
    a_task,
    bury,
    complete,
    dump,
    enqueue_and_claim,
    release,
    replay,
    retry,
    settle,
    settle_now,
    snooze,
    state_of,
    stop,
    take_over,
    worker_on,
)

every_ending = pytest.mark.parametrize("ending", ENDINGS)


class TestFences:
    @every_ending
    async def test_a_stalled_workers_late_settle_changes_nothing(
        self, store: Store, clock: ManualClock, ending: str
    ) -> None:
        stalled = await enqueue_and_claim(store, await worker_on(store))
        await take_over(store, clock, stalled)
        before = await dump(store)

        receipts = await settle(store, ENDINGS[ending](stalled))

        assert receipts == (Receipt.LOST,)
        assert await dump(store) == before

    @every_ending
    async def test_a_late_settle_does_not_affect_the_next_attempt(
        self, store: Store, clock: ManualClock, ending: str
    ) -> None:
        stalled = await enqueue_and_claim(store, await worker_on(store))
        rescuer, rescued = await take_over(store, clock, stalled)
        await settle_now(store, retry(rescued))
        await rescuer.claim_one(stalled.task.queue)
        before = await dump(store)

        assert await settle(store, ENDINGS[ending](stalled), ENDINGS[ending](rescued)) == (Receipt.LOST,) * 2
        assert await dump(store) == before

    @every_ending
    async def test_an_old_lease_is_invalid_after_a_snooze(self, store: Store, ending: str) -> None:
        worker = await worker_on(store)
        snoozed = await enqueue_and_claim(store, worker)
        await settle_now(store, snooze(snoozed))
        again = await worker.claim_one(snoozed.task.queue)
        assert again.task.attempt == snoozed.task.attempt
        before = await dump(store)

        receipts = await settle(store, ENDINGS[ending](snoozed))

        assert receipts == (Receipt.LOST,)
        assert await dump(store) == before

    @every_ending
    async def test_an_old_lease_is_invalid_after_a_replay(self, store: Store, ending: str) -> None:
        worker = await worker_on(store)
        buried = await enqueue_and_claim(store, worker)
        await settle_now(store, bury(buried))
        await replay(store, buried.task.id)
        again = await worker.claim_one(buried.task.queue)
        assert again.task.attempt == buried.task.attempt
        before = await dump(store)

        receipts = await settle(store, ENDINGS[ending](buried))

        assert receipts == (Receipt.LOST,)
        assert await dump(store) == before

    @every_ending
    async def test_repeating_a_settle_is_harmless(
        self, store: Store, clock: ManualClock, ending: str
    ) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        await settle_now(store, ENDINGS[ending](claimed))
        before = await dump(store)
        clock.advance(1)

        receipts = await settle(store, ENDINGS[ending](claimed), ENDINGS[ending](claimed))

        assert receipts == (Receipt.REPEATED, Receipt.REPEATED)
        assert await dump(store) == before

    async def test_the_same_settlement_twice_in_a_batch_applies_once(self, store: Store) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))

        receipts = await settle(store, retry(claimed), retry(claimed))

        assert receipts == (Receipt.APPLIED, Receipt.REPEATED)
        assert len(await store.attempts(claimed.task.id)) == 1

    @pytest.mark.parametrize("first", ["complete", "bury", "cancel"])
    @every_ending
    async def test_an_ended_task_cannot_be_settled_otherwise(
        self, store: Store, first: str, ending: str
    ) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        await settle_now(store, ENDINGS[first](claimed))
        before = await dump(store)

        receipts = await settle(store, ENDINGS[ending](claimed))

        assert receipts == (Receipt.REPEATED,)
        assert await dump(store) == before

    @every_ending
    async def test_an_unknown_fence_settles_nothing(self, store: Store, ending: str) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        before = await dump(store)

        for fence in (claimed.task.fence - 1, claimed.task.fence + 1):
            receipts = await settle(store, ENDINGS[ending](Lease(claimed.task.id, fence)))
            assert receipts == (Receipt.LOST,)

        assert await dump(store) == before

    async def test_settling_a_deleted_task_changes_nothing(self, store: Store) -> None:
        before = await dump(store)

        (receipt,) = await settle(store, complete(Lease(a_task().id, 1), None, a_task()))

        assert receipt is not Receipt.APPLIED
        assert await dump(store) == before

    async def test_an_expired_session_can_settle_tasks_not_taken_over(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(LEASE * 2)

        assert await settle(store, complete(claimed)) == (Receipt.APPLIED,)
        assert await state_of(store, claimed.task.id) is State.COMPLETED

    async def test_fences_only_rise(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        fences = [(claimed := await enqueue_and_claim(store, worker)).task.fence]
        queue = claimed.task.queue
        for ending in (snooze, release, retry, bury, stop):
            await settle_now(store, ending(claimed))
            await replay(store, claimed.task.id)
            claimed = await worker.claim_one(queue)
            fences.append(claimed.task.fence)
        await worker.beat(through=worker.claims)
        fences.append((await worker.claim_one(queue)).task.fence)
        clock.advance(LEASE)
        rescuer = await worker_on(store)
        fences += [one.task.fence for one in await store.rescue(rescuer.session, limit=10)]

        assert len(fences) == 8
        assert fences == sorted(set(fences))
