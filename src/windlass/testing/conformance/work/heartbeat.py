"""Heartbeat: extends leases, and reveals claims whose replies were lost."""

from datetime import timedelta

from msgspec.structs import replace

from ...._model.lease import Claimed, Lease, ProgressReport
from ...._model.record import Session, StuckHandler, Worker
from ...._model.state import State
from ...._model.task import Progress
from ...._model.verdict import Receipt
from ..steps import LEASE, ManualWorker, StoreTest, complete, some_tasks


class TestSessions(StoreTest):
    async def test_opening_makes_a_session(self) -> None:
        worker = ManualWorker(self.store, "w7")

        reply = await worker.beat(opening=True)

        (session,) = await self.all_records(Session)
        assert (reply.alive, reply.lost, reply.cancel) == (True, (), ())
        assert (session.id, session.worker.name, session.worker.slots) == (worker.session, "w7", 4)
        assert (session.started_at, session.beat_at) == (self.clock.now(), self.clock.now())
        assert session.expires_at == self.clock.now() + LEASE

    async def test_a_session_keeps_what_its_worker_last_said_of_stuck_handlers(
        self, worker: ManualWorker
    ) -> None:
        task = (await self.enqueue_and_claim(worker)).task
        stuck = StuckHandler(task_id=task.id, type="t", attempt=1, overrun=2.5, place="a.py:1 in f")
        both = (stuck, replace(stuck, replaced=True, place=""))

        await worker.beat(Lease(task.id, task.fence), worker=Worker(name="w", stuck=both))

        (session,) = await self.all_records(Session)
        assert session.worker.stuck == both
        await worker.beat(Lease(task.id, task.fence))
        (session,) = await self.all_records(Session)
        assert session.worker.stuck == ()

    async def test_opening_again_is_harmless(self, worker: ManualWorker) -> None:
        started_at = self.clock.now()
        held = await self.enqueue_and_claim(worker)
        self.clock.advance(1)

        reply = await worker.beat(held.lease, opening=True)

        (session,) = await self.all_records(Session)
        assert (reply.alive, reply.lost) == (True, ())
        assert (session.started_at, session.beat_at) == (started_at, self.clock.now())
        assert await self.state_of(held.task.id) is State.RUNNING

    async def test_a_heartbeat_extends_every_lease_of_the_session(self) -> None:
        worker, other = await self.new_worker(), await self.new_worker(lease_for=timedelta(days=1))
        leases = [(await self.enqueue_and_claim(worker)).lease for _ in range(3)]
        self.clock.advance(LEASE - timedelta(seconds=1))
        assert (await worker.beat(*leases, through=worker.claims)).alive
        self.clock.advance(LEASE - timedelta(seconds=1))

        assert list(await other.rescue()) == []
        assert set(await self.settle(*(complete(lease) for lease in leases))) == {Receipt.APPLIED}

    async def test_the_reply_says_how_many_workers_there_are(self) -> None:
        workers = [await self.new_worker() for _ in range(3)]
        assert (await workers[0].beat()).workers == 3

        await self.store.remove(Session, workers[2].session)
        assert (await workers[0].beat()).workers == 2

    async def test_an_unknown_session_is_not_alive_and_not_made(self) -> None:
        async with self.unchanged():
            assert not (await ManualWorker(self.store).beat()).alive

    async def test_a_deleted_session_is_not_alive(self, worker: ManualWorker, held: Claimed) -> None:
        await self.take_over(held)

        assert not (await worker.beat(held.lease)).alive

    async def test_a_late_heartbeat_keeps_leases_not_taken_over(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        self.clock.advance(LEASE * 2)

        reply = await worker.beat(held.lease, through=worker.claims)

        assert (reply.alive, reply.lost) == (True, ())
        rescuer = await self.new_worker()
        assert list(await rescuer.rescue()) == []

    async def test_a_heartbeat_may_shorten_the_lease(self, worker: ManualWorker) -> None:
        await worker.beat(lease_for=timedelta(seconds=1))
        self.clock.advance(1)
        rescuer = await self.new_worker()

        await rescuer.rescue()

        assert not (await worker.beat()).alive


class TestHeartbeatReplies(StoreTest):
    async def test_lost_leases_are_named(self, worker: ManualWorker) -> None:
        lost, ended = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        await self.settle_now(complete(ended))
        await self.take_over(lost)
        await worker.beat(opening=True)
        kept = await self.enqueue_and_claim(worker)

        reply = await worker.beat(lost.lease, ended.lease, kept.lease, through=worker.claims)

        assert reply.alive
        assert set(reply.lost) == {lost.lease, ended.lease}

    async def test_a_request_to_stop_is_repeated_until_the_task_ends(self, worker: ManualWorker) -> None:
        stopping, spared = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        await self.cancel(stopping.task.id)

        for _ in range(2):
            reply = await worker.beat(stopping.lease, spared.lease, through=worker.claims)
            assert (reply.lost, [one.task_id for one in reply.cancel]) == ((), [stopping.task.id])

    async def test_progress_is_kept(self, worker: ManualWorker, held: Claimed) -> None:
        half = Progress(fraction=0.5, message="half way — ½")

        await worker.report(ProgressReport(held.lease, half), held=[held.lease])

        assert (await self.load(held.task.id)).progress == half

    async def test_progress_under_a_stale_lease_changes_nothing(self, held: Claimed) -> None:
        rescuer, rescued = await self.take_over(held)

        await rescuer.report(ProgressReport(held.lease, Progress(fraction=0.9)), held=[rescued.lease])

        assert await self.load(held.task.id) == rescued.task

    async def test_progress_is_reset_at_the_next_claim(self, worker: ManualWorker, held: Claimed) -> None:
        await worker.report(ProgressReport(held.lease, Progress(fraction=0.5)), held=[held.lease])
        await worker.beat(through=worker.claims)

        again = await worker.claim_one(held.task.queue)

        assert again.task.progress is None
        assert await self.load(held.task.id) == again.task


class TestLostReplies(StoreTest):
    """A claim whose reply never arrived: the worker is alive, but does not know the tasks."""

    async def test_unacknowledged_claims_are_released_uncounted_with_a_new_fence(
        self, worker: ManualWorker
    ) -> None:
        unacknowledged, known = [await self.enqueue_and_claim(worker) for _ in range(2)]

        reply = await worker.beat(known.lease, through=worker.claims)

        task = await self.load(unacknowledged.task.id)
        assert (reply.alive, reply.lost) == (True, ())
        assert (task.state, task.attempt, task.session) == (State.READY, 0, None)
        assert task.fence > unacknowledged.task.fence
        assert await self.load(known.task.id) == known.task

    async def test_a_released_task_cannot_be_settled_with_the_old_lease(self, worker: ManualWorker) -> None:
        unacknowledged = await self.enqueue_and_claim(worker)
        await worker.beat(through=worker.claims)

        async with self.unchanged():
            assert await self.settle(complete(unacknowledged)) == (Receipt.LOST,)

    async def test_a_task_released_by_a_heartbeat_keeps_its_rank(self, worker: ManualWorker) -> None:
        first = await self.enqueue_one()
        await worker.claim_one()
        self.clock.advance(1)
        await self.enqueue_one()

        await worker.beat(through=worker.claims)

        assert (await worker.claim_one()).task.id == first

    async def test_claims_above_through_are_left_alone(self, worker: ManualWorker) -> None:
        await self.store.enqueue(some_tasks(3))
        received = await worker.claim_one()
        under_way = [await worker.claim_one(), await worker.claim_one()]

        await worker.beat(received.lease, through=1)

        assert [await self.load(one.task.id) for one in under_way] == [one.task for one in under_way]

        await worker.beat(received.lease, through=2)

        states = [await self.state_of(one.task.id) for one in (received, *under_way)]
        assert states == [State.RUNNING, State.READY, State.RUNNING]

    async def test_unacknowledged_claims_of_a_settle_are_released(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        await self.enqueue_one(queue="q")
        settled = await self.store.settle([complete(held)], worker.next_claim(1, "q"))

        await worker.beat(through=worker.claims)

        (unacknowledged,) = settled.claimed
        assert await self.state_of(unacknowledged.task.id) is State.READY

    async def test_a_task_held_by_an_old_lease_only_is_released(self, worker: ManualWorker) -> None:
        old = await self.enqueue_and_claim(worker)
        await worker.beat(through=worker.claims)
        again = await worker.claim_one(old.task.queue)

        reply = await worker.beat(old.lease, through=worker.claims)

        assert reply.lost == (old.lease,)
        assert await self.state_of(again.task.id) is State.READY

    async def test_an_unacknowledged_task_requested_to_stop_is_cancelled(self, worker: ManualWorker) -> None:
        unacknowledged = await self.enqueue_and_claim(worker)
        await self.cancel(unacknowledged.task.id)

        await worker.beat(through=worker.claims)

        task = await self.load(unacknowledged.task.id)
        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, self.clock.now(), None)

    async def test_other_sessions_tasks_are_left_alone(self, held: Claimed) -> None:
        worker = await self.new_worker()

        reply = await worker.beat(through=1000)

        assert reply == await worker.beat(through=1000)
        assert await self.load(held.task.id) == held.task

    async def test_a_rescue_whose_reply_was_lost_keeps_its_attempt_counted(self, held: Claimed) -> None:
        rescuer, rescued = await self.take_over(held)

        await rescuer.beat()

        task = await self.load(held.task.id)
        assert (task.state, task.attempt, task.session) == (State.READY, 1, None)
        assert task.fence > rescued.task.fence
        assert await self.settle(complete(Lease(task.id, rescued.task.fence))) == (Receipt.LOST,)
