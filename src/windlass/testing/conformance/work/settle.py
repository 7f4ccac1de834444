"""Settle: what each verdict makes of a task, alone and in batches."""

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
    applied,
    bury,
    cancel,
    complete,
    dump,
    exists,
    get,
    release,
    retry,
    running,
    settle,
    settlement,
    snooze,
    stand,
    state_of,
    stop,
    taken_over,
    worker_on,
)


class TestVerdicts:
    async def test_completing_keeps_the_result_and_the_time(self, store: Store, clock: ManualClock) -> None:
        claimed = await running(store, await worker_on(store))
        clock.advance(3)

        await applied(store, complete(claimed, b'{"sent":true}'))

        task = await get(store, claimed.task.id)
        assert (task.state, task.result, task.error) == (State.COMPLETED, b'{"sent":true}', None)
        assert (task.finished_at, task.duration, task.session) == (clock.now(), 0.25, None)
        assert (task.worker, task.attempt, task.fence) == ("worker", 1, claimed.task.fence)

    async def test_completing_without_a_result_has_none(self, store: Store) -> None:
        claimed = await running(store, await worker_on(store))

        await applied(store, complete(claimed))

        assert (await get(store, claimed.task.id)).result is None

    async def test_completing_forgets_the_error_of_an_earlier_attempt(self, store: Store) -> None:
        worker = await worker_on(store)
        failed = await running(store, worker)
        await applied(store, retry(failed))
        assert (await get(store, failed.task.id)).error == BOOM

        await applied(store, complete(await worker.claim_one(failed.task.queue)))

        assert (await get(store, failed.task.id)).error is None

    async def test_a_retry_counts_and_waits_its_delay(self, store: Store, clock: ManualClock) -> None:
        claimed = await running(store, await worker_on(store))
        clock.advance(1)

        await applied(store, retry(claimed, timedelta(seconds=5)))

        task = await get(store, claimed.task.id)
        assert (task.state, task.attempt, task.error) == (State.SCHEDULED, 1, BOOM)
        assert (task.run_at, task.session, task.finished_at) == (
            clock.now() + timedelta(seconds=5),
            None,
            None,
        )

    async def test_a_retry_without_delay_is_ready_at_once(self, store: Store, clock: ManualClock) -> None:
        claimed = await running(store, await worker_on(store))
        clock.advance(1)

        await applied(store, retry(claimed))

        task = await get(store, claimed.task.id)
        assert (task.state, task.attempt, task.run_at) == (State.READY, 1, clock.now())

    async def test_a_snooze_gives_its_attempt_back(self, store: Store, clock: ManualClock) -> None:
        claimed = await running(store, await worker_on(store))

        await applied(store, snooze(claimed, timedelta(minutes=1)))

        task = await get(store, claimed.task.id)
        assert (task.state, task.attempt, task.fence) == (State.SCHEDULED, 0, claimed.task.fence)
        assert task.run_at == clock.now() + timedelta(minutes=1)

    async def test_a_release_gives_its_attempt_and_its_place_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await running(store, await worker_on(store))
        clock.advance(1)

        await applied(store, release(claimed))

        task = await get(store, claimed.task.id)
        assert (task.state, task.attempt, task.run_at) == (State.READY, 0, claimed.task.run_at)

    async def test_a_release_with_a_delay_waits_for_it(self, store: Store, clock: ManualClock) -> None:
        claimed = await running(store, await worker_on(store))
        later = Postpone(delay=timedelta(seconds=9), reason=Reason.RELEASE)

        await applied(store, settlement(claimed, later, "unhandled"))

        task = await get(store, claimed.task.id)
        assert (task.state, task.attempt) == (State.SCHEDULED, 0)
        assert task.run_at == clock.now() + timedelta(seconds=9)

    async def test_a_snooze_keeps_the_last_error(self, store: Store) -> None:
        worker = await worker_on(store)
        failed = await running(store, worker)
        await applied(store, retry(failed))

        await applied(store, snooze(await worker.claim_one(failed.task.queue)))

        assert (await get(store, failed.task.id)).error == BOOM

    async def test_burying_keeps_the_error_and_the_time(self, store: Store, clock: ManualClock) -> None:
        claimed = await running(store, await worker_on(store))
        error = Error(type="Fatal", message="no such ünïcode 🚢", traceback="line 1\nline 2")

        await applied(store, bury(claimed, error))

        task = await get(store, claimed.task.id)
        assert (task.state, task.error, task.finished_at) == (State.DEAD, error, clock.now())
        assert (task.session, task.duration, task.attempt) == (None, 0.25, 1)

    async def test_stopping_on_request_ends_in_cancelled(self, store: Store, clock: ManualClock) -> None:
        claimed = await running(store, await worker_on(store))

        await applied(store, stop(claimed))

        task = await get(store, claimed.task.id)
        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, clock.now(), None)


class TestBatches:
    async def test_each_settlement_of_a_batch_stands_for_itself(
        self, store: Store, clock: ManualClock
    ) -> None:
        stalled = await running(store, await worker_on(store))
        await taken_over(store, clock, stalled)
        worker = await worker_on(store)
        kept, repeated = await running(store, worker), await running(store, worker)
        await applied(store, complete(repeated))

        receipts = await settle(store, complete(stalled), complete(kept), complete(repeated), bury(stalled))

        assert receipts == (Receipt.LOST, Receipt.APPLIED, Receipt.REPEATED, Receipt.LOST)
        assert await state_of(store, kept.task.id) is State.COMPLETED

    async def test_settling_and_claiming_are_one_round_trip(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker, queue="q")
        waiting = await stand(store, queue="q")

        settled = await store.settle([complete(held)], worker.ask(5, "q"))

        assert settled.receipts == (Receipt.APPLIED,)
        assert [one.task.id for one in settled.claimed] == [waiting]

    async def test_the_claim_sees_what_the_settlements_freed(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker, queue="q")
        successor = a_task(queue="q")

        settled = await store.settle([complete(held, None, successor)], worker.ask(5, "q"))

        assert [one.task.id for one in settled.claimed] == [successor.id]

    async def test_claiming_without_settling_is_a_claim(self, store: Store) -> None:
        worker = await worker_on(store)
        task_id = await stand(store)

        settled = await store.settle([], worker.ask(5))

        assert (settled.receipts, [one.task.id for one in settled.claimed]) == ((), [task_id])

    async def test_a_dead_sessions_settlements_count_and_its_claim_gets_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        held = await running(store, worker, queue="q")
        await stand(store, queue="q")
        clock.advance(LEASE)

        settled = await store.settle([complete(held)], worker.ask(5, "q"))

        assert (settled.receipts, settled.claimed) == ((Receipt.APPLIED,), ())
        assert [task.state for task in await all_tasks(store)] == [State.COMPLETED, State.READY]

    async def test_an_unknown_sessions_settlements_count_and_its_claim_gets_nothing(
        self, store: Store
    ) -> None:
        held = await running(store, await worker_on(store), queue="q")
        await stand(store, queue="q")

        settled = await store.settle([complete(held)], ManualWorker(store).ask(5, "q"))

        assert (settled.receipts, settled.claimed) == ((Receipt.APPLIED,), ())


class TestFlagged:
    """A running task that an operator has asked to stop."""

    @pytest.mark.parametrize("ending", ["retry", "snooze", "release", "cancel"])
    async def test_a_flagged_task_that_is_postponed_ends_cancelled(
        self, store: Store, clock: ManualClock, ending: str
    ) -> None:
        claimed = await running(store, await worker_on(store))
        await cancel(store, claimed.task.id)
        clock.advance(1)

        await applied(store, ENDINGS[ending](claimed))

        task = await get(store, claimed.task.id)
        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, clock.now(), None)

    @pytest.mark.parametrize(("ending", "state"), [("complete", State.COMPLETED), ("bury", State.DEAD)])
    async def test_a_flagged_task_that_ends_otherwise_ends_so(
        self, store: Store, ending: str, state: State
    ) -> None:
        claimed = await running(store, await worker_on(store))
        await cancel(store, claimed.task.id)

        await applied(store, ENDINGS[ending](claimed))

        assert await state_of(store, claimed.task.id) is state

    async def test_a_flagged_task_postponed_twice_is_cancelled_once(self, store: Store) -> None:
        claimed = await running(store, await worker_on(store))
        await cancel(store, claimed.task.id)
        await applied(store, retry(claimed))
        before = await dump(store)

        assert await settle(store, retry(claimed)) == (Receipt.REPEATED,)
        assert await dump(store) == before
        assert await exists(store, claimed.task.id)
