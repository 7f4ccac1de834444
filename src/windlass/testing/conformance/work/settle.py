"""Settle: the effect of each verdict, alone and in batches."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from ...._model.lease import Claimed, ProgressReport
from ...._model.state import State
from ...._model.task import Error, Progress
from ...._model.verdict import Postpone, Reason, Receipt
from ..steps import (
    BOOM,
    ENDINGS,
    LEASE,
    ManualWorker,
    StoreTest,
    a_task,
    bury,
    complete,
    release,
    retry,
    settlement,
    snooze,
    stop,
)

_TENTH = Progress(fraction=0.1, message="1 of 10")
_WHOLE = Progress(fraction=1.0, message="10 of 10")


class TestVerdicts(StoreTest):
    async def test_completing_keeps_the_result_and_the_time(self, held: Claimed) -> None:
        self.clock.advance(3)

        task = await self.settled(complete(held, b'{"sent":true}'))

        assert (task.state, task.result, task.error) == (State.COMPLETED, b'{"sent":true}', None)
        assert (task.finished_at, task.duration, task.session) == (self.clock.now(), 0.25, None)
        assert (task.worker, task.attempt, task.fence) == ("worker", 1, held.task.fence)

    async def test_completing_without_a_result_has_none(self, held: Claimed) -> None:
        assert (await self.settled(complete(held))).result is None

    async def test_completing_forgets_the_error_of_an_earlier_attempt(self, worker: ManualWorker) -> None:
        failed = await self.enqueue_and_settle(worker, retry)
        assert (await self.load(failed.task.id)).error == BOOM

        task = await self.settled(complete(await worker.claim_one(failed.task.queue)))

        assert task.error is None

    async def test_a_retry_counts_and_waits_its_delay(self, held: Claimed) -> None:
        self.clock.advance(1)

        task = await self.settled(retry(held, timedelta(seconds=5)))

        assert (task.state, task.attempt, task.error) == (State.SCHEDULED, 1, BOOM)
        assert task.run_at == self.clock.now() + timedelta(seconds=5)
        assert (task.session, task.finished_at) == (None, None)

    async def test_a_retry_without_delay_is_ready_at_once(self, held: Claimed) -> None:
        self.clock.advance(1)

        task = await self.settled(retry(held))

        assert (task.state, task.attempt, task.run_at) == (State.READY, 1, self.clock.now())

    async def test_a_snooze_does_not_count_as_an_attempt(self, held: Claimed) -> None:
        task = await self.settled(snooze(held, timedelta(minutes=1)))

        assert (task.state, task.attempt, task.fence) == (State.SCHEDULED, 0, held.task.fence)
        assert task.run_at == self.clock.now() + timedelta(minutes=1)

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_task_keeps_since_when_it_has_no_handler_until_it_is_settled(
        self, worker: ManualWorker, held: Claimed, ending: str
    ) -> None:
        since = self.clock.now() - timedelta(hours=1)
        unhandled = Postpone(delay=timedelta(0), reason=Reason.SNOOZE, error=BOOM, unhandled_since=since)
        await self.settle_now(settlement(held, unhandled))
        again = await worker.claim_one(held.task.queue)
        assert again.task.unhandled_since == since

        assert (await self.settled(ENDINGS[ending](again))).unhandled_since is None

    async def test_a_release_does_not_count_and_keeps_the_rank(self, held: Claimed) -> None:
        self.clock.advance(1)

        task = await self.settled(release(held))

        assert (task.state, task.attempt, task.run_at) == (State.READY, 0, held.task.run_at)

    async def test_a_release_with_a_delay_waits_for_it(self, held: Claimed) -> None:
        later = Postpone(delay=timedelta(seconds=9), reason=Reason.RELEASE)

        task = await self.settled(settlement(held, later, "unhandled"))

        assert (task.state, task.attempt) == (State.SCHEDULED, 0)
        assert task.run_at == self.clock.now() + timedelta(seconds=9)

    async def test_a_snooze_keeps_the_last_error(self, worker: ManualWorker) -> None:
        failed = await self.enqueue_and_settle(worker, retry)

        task = await self.settled(snooze(await worker.claim_one(failed.task.queue)))

        assert task.error == BOOM

    async def test_burying_keeps_the_error_and_the_time(self, held: Claimed) -> None:
        error = Error(type="Fatal", message="no such ünïcode 🚢", traceback="line 1\nline 2")

        task = await self.settled(bury(held, error))

        assert (task.state, task.error, task.finished_at) == (State.DEAD, error, self.clock.now())
        assert (task.session, task.duration, task.attempt) == (None, 0.25, 1)

    async def test_stopping_on_request_ends_in_cancelled(self, held: Claimed) -> None:
        task = await self.settled(stop(held))

        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, self.clock.now(), None)

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_the_last_progress_is_settled_with_the_task(
        self, worker: ManualWorker, held: Claimed, ending: str
    ) -> None:
        await worker.report(ProgressReport(held.lease, _TENTH), held=[held.lease])

        task = await self.settled(replace(ENDINGS[ending](held), progress=_WHOLE))

        assert task.progress == _WHOLE

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_without_progress_a_settlement_keeps_what_was_reported(
        self, worker: ManualWorker, held: Claimed, ending: str
    ) -> None:
        await worker.report(ProgressReport(held.lease, _TENTH), held=[held.lease])

        assert (await self.settled(ENDINGS[ending](held))).progress == _TENTH

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_progress_in_a_stale_or_repeated_settlement_changes_nothing(
        self, held: Claimed, ending: str
    ) -> None:
        await self.take_over(held)
        async with self.unchanged():
            await self.settle(replace(ENDINGS[ending](held), progress=_WHOLE))
        worker = await self.new_worker()
        ended = await self.enqueue_and_settle(worker, ENDINGS[ending])
        async with self.unchanged():
            await self.settle(replace(ENDINGS[ending](ended), progress=_WHOLE))


class TestBatches(StoreTest):
    async def test_each_settlement_of_a_batch_has_its_own_progress(self, worker: ManualWorker) -> None:
        first, second, third = [await self.enqueue_and_claim(worker) for _ in range(3)]

        await self.settle(
            replace(complete(first), progress=_WHOLE),
            complete(second),
            replace(bury(third), progress=_TENTH),
            replace(bury(third), progress=_WHOLE),
        )

        stored = [(await self.load(one.task.id)).progress for one in (first, second, third)]
        assert stored == [_WHOLE, None, _TENTH]

    async def test_each_settlement_of_a_batch_is_independent(self, held: Claimed) -> None:
        await self.take_over(held)
        worker = await self.new_worker()
        kept = await self.enqueue_and_claim(worker)
        repeated = await self.enqueue_and_settle(worker, complete)

        receipts = await self.settle(complete(held), complete(kept), complete(repeated), bury(held))

        assert receipts == (Receipt.LOST, Receipt.APPLIED, Receipt.REPEATED, Receipt.LOST)
        assert await self.state_of(kept.task.id) is State.COMPLETED

    async def test_settling_and_claiming_are_one_round_trip(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker, queue="q")
        waiting = await self.enqueue_one(queue="q")

        settled = await self.store.settle([complete(held)], worker.next_claim(5, "q"))

        assert settled.receipts == (Receipt.APPLIED,)
        assert [one.task.id for one in settled.claimed] == [waiting]

    async def test_the_claim_sees_what_the_settlements_freed(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker, queue="q")
        successor = a_task(queue="q")

        settled = await self.store.settle([complete(held, None, successor)], worker.next_claim(5, "q"))

        assert [one.task.id for one in settled.claimed] == [successor.id]

    async def test_claiming_without_settling_is_a_claim(self, worker: ManualWorker) -> None:
        task_id = await self.enqueue_one()

        settled = await self.store.settle([], worker.next_claim(5))

        assert (settled.receipts, [one.task.id for one in settled.claimed]) == ((), [task_id])

    async def test_an_expired_session_settles_but_claims_nothing(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker, queue="q")
        await self.enqueue_one(queue="q")
        self.clock.advance(LEASE)

        settled = await self.store.settle([complete(held)], worker.next_claim(5, "q"))

        assert (settled.receipts, settled.claimed) == ((Receipt.APPLIED,), ())
        assert [task.state for task in await self.all_tasks()] == [State.COMPLETED, State.READY]

    async def test_an_unknown_session_settles_but_claims_nothing(self) -> None:
        held = await self.enqueue_and_claim(await self.new_worker(), queue="q")
        await self.enqueue_one(queue="q")

        settled = await self.store.settle([complete(held)], ManualWorker(self.store).next_claim(5, "q"))

        assert (settled.receipts, settled.claimed) == ((Receipt.APPLIED,), ())


class TestCancelRequested(StoreTest):
    """A running task that an operator has requested to stop."""

    @pytest.mark.parametrize("ending", ["retry", "snooze", "release", "cancel"])
    async def test_postponing_a_task_requested_to_stop_cancels_it(self, held: Claimed, ending: str) -> None:
        await self.cancel(held.task.id)
        self.clock.advance(1)

        task = await self.settled(ENDINGS[ending](held))

        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, self.clock.now(), None)

    @pytest.mark.parametrize(("ending", "state"), [("complete", State.COMPLETED), ("bury", State.DEAD)])
    async def test_a_task_requested_to_stop_may_end_otherwise(
        self, held: Claimed, ending: str, state: State
    ) -> None:
        await self.cancel(held.task.id)

        assert (await self.settled(ENDINGS[ending](held))).state is state

    async def test_repeating_the_postponement_cancels_once(self, held: Claimed) -> None:
        await self.cancel(held.task.id)
        await self.settle_now(retry(held))

        async with self.unchanged():
            assert await self.settle(retry(held)) == (Receipt.REPEATED,)

        assert await self.exists(held.task.id)
