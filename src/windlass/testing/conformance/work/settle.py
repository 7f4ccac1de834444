"""Settle: the effect of each verdict, alone and in batches."""

from datetime import timedelta

import pytest

from ...._model.state import State
from ...._model.task import Error
from ...._model.verdict import Postpone, Reason, Receipt
from ...._store.protocol import Store
from ...clock import ManualClock
from ..steps import (
    BOOM,
    ENDINGS,
    LEASE,
    ManualWorker,
    a_task,
    all_tasks,
    bury,
    cancel,
    complete,
    dump,
    enqueue_and_claim,
    enqueue_one,
    exists,
    load,
    release,
    retry,
    settle,
    settle_now,
    settlement,
    snooze,
    state_of,
    stop,
    take_over,
    worker_on,
)


class TestVerdicts:
    async def test_completing_keeps_the_result_and_the_time(self, store: Store, clock: ManualClock) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(3)

        await settle_now(store, complete(claimed, b'{"sent":true}'))

        task = await load(store, claimed.task.id)
        assert (task.state, task.result, task.error) == (State.COMPLETED, b'{"sent":true}', None)
        assert (task.finished_at, task.duration, task.session) == (clock.now(), 0.25, None)
        assert (task.worker, task.attempt, task.fence) == ("worker", 1, claimed.task.fence)

    async def test_completing_without_a_result_has_none(self, store: Store) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))

        await settle_now(store, complete(claimed))

        assert (await load(store, claimed.task.id)).result is None

    async def test_completing_forgets_the_error_of_an_earlier_attempt(self, store: Store) -> None:
        worker = await worker_on(store)
        failed = await enqueue_and_claim(store, worker)
        await settle_now(store, retry(failed))
        assert (await load(store, failed.task.id)).error == BOOM

        await settle_now(store, complete(await worker.claim_one(failed.task.queue)))

        assert (await load(store, failed.task.id)).error is None

    async def test_a_retry_counts_and_waits_its_delay(self, store: Store, clock: ManualClock) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(1)

        await settle_now(store, retry(claimed, timedelta(seconds=5)))

        task = await load(store, claimed.task.id)
        assert (task.state, task.attempt, task.error) == (State.SCHEDULED, 1, BOOM)
        assert (task.run_at, task.session, task.finished_at) == (
            clock.now() + timedelta(seconds=5),
            None,
            None,
        )

    async def test_a_retry_without_delay_is_ready_at_once(self, store: Store, clock: ManualClock) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(1)

        await settle_now(store, retry(claimed))

        task = await load(store, claimed.task.id)
        assert (task.state, task.attempt, task.run_at) == (State.READY, 1, clock.now())

    async def test_a_snooze_does_not_count_as_an_attempt(self, store: Store, clock: ManualClock) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))

        await settle_now(store, snooze(claimed, timedelta(minutes=1)))

        task = await load(store, claimed.task.id)
        assert (task.state, task.attempt, task.fence) == (State.SCHEDULED, 0, claimed.task.fence)
        assert task.run_at == clock.now() + timedelta(minutes=1)

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_task_keeps_since_when_it_has_no_handler_until_it_is_settled(
        self, store: Store, clock: ManualClock, ending: str
    ) -> None:
        worker = await worker_on(store)
        claimed = await enqueue_and_claim(store, worker)
        since = clock.now() - timedelta(hours=1)
        unhandled = Postpone(delay=timedelta(0), reason=Reason.SNOOZE, error=BOOM, unhandled_since=since)
        await settle_now(store, settlement(claimed, unhandled))
        again = await worker.claim_one(claimed.task.queue)
        assert again.task.unhandled_since == since

        await settle_now(store, ENDINGS[ending](again))

        assert (await load(store, claimed.task.id)).unhandled_since is None

    async def test_a_release_does_not_count_and_keeps_the_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(1)

        await settle_now(store, release(claimed))

        task = await load(store, claimed.task.id)
        assert (task.state, task.attempt, task.run_at) == (State.READY, 0, claimed.task.run_at)

    async def test_a_release_with_a_delay_waits_for_it(self, store: Store, clock: ManualClock) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        later = Postpone(delay=timedelta(seconds=9), reason=Reason.RELEASE)

        await settle_now(store, settlement(claimed, later, "unhandled"))

        task = await load(store, claimed.task.id)
        assert (task.state, task.attempt) == (State.SCHEDULED, 0)
        assert task.run_at == clock.now() + timedelta(seconds=9)

    async def test_a_snooze_keeps_the_last_error(self, store: Store) -> None:
        worker = await worker_on(store)
        failed = await enqueue_and_claim(store, worker)
        await settle_now(store, retry(failed))

        await settle_now(store, snooze(await worker.claim_one(failed.task.queue)))

        assert (await load(store, failed.task.id)).error == BOOM

    async def test_burying_keeps_the_error_and_the_time(self, store: Store, clock: ManualClock) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        error = Error(type="Fatal", message="no such ünïcode 🚢", traceback="line 1\nline 2")

        await settle_now(store, bury(claimed, error))

        task = await load(store, claimed.task.id)
        assert (task.state, task.error, task.finished_at) == (State.DEAD, error, clock.now())
        assert (task.session, task.duration, task.attempt) == (None, 0.25, 1)

    async def test_stopping_on_request_ends_in_cancelled(self, store: Store, clock: ManualClock) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))

        await settle_now(store, stop(claimed))

        task = await load(store, claimed.task.id)
        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, clock.now(), None)


class TestBatches:
    async def test_each_settlement_of_a_batch_is_independent(self, store: Store, clock: ManualClock) -> None:
        stalled = await enqueue_and_claim(store, await worker_on(store))
        await take_over(store, clock, stalled)
        worker = await worker_on(store)
        kept, repeated = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        await settle_now(store, complete(repeated))

        receipts = await settle(store, complete(stalled), complete(kept), complete(repeated), bury(stalled))

        assert receipts == (Receipt.LOST, Receipt.APPLIED, Receipt.REPEATED, Receipt.LOST)
        assert await state_of(store, kept.task.id) is State.COMPLETED

    async def test_settling_and_claiming_are_one_round_trip(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker, queue="q")
        waiting = await enqueue_one(store, queue="q")

        settled = await store.settle([complete(held)], worker.next_claim(5, "q"))

        assert settled.receipts == (Receipt.APPLIED,)
        assert [one.task.id for one in settled.claimed] == [waiting]

    async def test_the_claim_sees_what_the_settlements_freed(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker, queue="q")
        successor = a_task(queue="q")

        settled = await store.settle([complete(held, None, successor)], worker.next_claim(5, "q"))

        assert [one.task.id for one in settled.claimed] == [successor.id]

    async def test_claiming_without_settling_is_a_claim(self, store: Store) -> None:
        worker = await worker_on(store)
        task_id = await enqueue_one(store)

        settled = await store.settle([], worker.next_claim(5))

        assert (settled.receipts, [one.task.id for one in settled.claimed]) == ((), [task_id])

    async def test_an_expired_session_settles_but_claims_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker, queue="q")
        await enqueue_one(store, queue="q")
        clock.advance(LEASE)

        settled = await store.settle([complete(held)], worker.next_claim(5, "q"))

        assert (settled.receipts, settled.claimed) == ((Receipt.APPLIED,), ())
        assert [task.state for task in await all_tasks(store)] == [State.COMPLETED, State.READY]

    async def test_an_unknown_session_settles_but_claims_nothing(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store), queue="q")
        await enqueue_one(store, queue="q")

        settled = await store.settle([complete(held)], ManualWorker(store).next_claim(5, "q"))

        assert (settled.receipts, settled.claimed) == ((Receipt.APPLIED,), ())


class TestCancelRequested:
    """A running task that an operator has requested to stop."""

    @pytest.mark.parametrize("ending", ["retry", "snooze", "release", "cancel"])
    async def test_postponing_a_task_requested_to_stop_cancels_it(
        self, store: Store, clock: ManualClock, ending: str
    ) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        await cancel(store, claimed.task.id)
        clock.advance(1)

        await settle_now(store, ENDINGS[ending](claimed))

        task = await load(store, claimed.task.id)
        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, clock.now(), None)

    @pytest.mark.parametrize(("ending", "state"), [("complete", State.COMPLETED), ("bury", State.DEAD)])
    async def test_a_task_requested_to_stop_may_end_otherwise(
        self, store: Store, ending: str, state: State
    ) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        await cancel(store, claimed.task.id)

        await settle_now(store, ENDINGS[ending](claimed))

        assert await state_of(store, claimed.task.id) is state

    async def test_repeating_the_postponement_cancels_once(self, store: Store) -> None:
        claimed = await enqueue_and_claim(store, await worker_on(store))
        await cancel(store, claimed.task.id)
        await settle_now(store, retry(claimed))
        before = await dump(store)

        assert await settle(store, retry(claimed)) == (Receipt.REPEATED,)
        assert await dump(store) == before
        assert await exists(store, claimed.task.id)
