"""Heartbeat: extends leases, and reveals claims whose replies were lost."""

from datetime import timedelta

from ...._model.lease import Lease, ProgressReport
from ...._model.record import Session
from ...._model.state import State
from ...._model.task import Progress
from ...._model.verdict import Receipt
from ...._store.protocol import Store
from ...clock import ManualClock
from ..steps import (
    LEASE,
    ManualWorker,
    all_records,
    cancel,
    complete,
    dump,
    enqueue_and_claim,
    enqueue_one,
    load,
    settle,
    settle_now,
    some_tasks,
    state_of,
    worker_on,
)


class TestSessions:
    async def test_opening_makes_a_session(self, store: Store, clock: ManualClock) -> None:
        worker = ManualWorker(store, "w7")

        reply = await worker.beat(opening=True)

        (session,) = await all_records(store, Session)
        assert (reply.alive, reply.lost, reply.cancel) == (True, (), ())
        assert (session.id, session.worker.name, session.worker.slots) == (worker.session, "w7", 4)
        assert (session.started_at, session.beat_at) == (clock.now(), clock.now())
        assert session.expires_at == clock.now() + LEASE

    async def test_opening_again_is_harmless(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        started_at = clock.now()
        held = await enqueue_and_claim(store, worker)
        clock.advance(1)

        reply = await worker.beat(held.lease, opening=True)

        (session,) = await all_records(store, Session)
        assert (reply.alive, reply.lost) == (True, ())
        assert (session.started_at, session.beat_at) == (started_at, clock.now())
        assert await state_of(store, held.task.id) is State.RUNNING

    async def test_a_heartbeat_extends_every_lease_of_the_session(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker, other = await worker_on(store), await worker_on(store, lease_for=timedelta(days=1))
        leases = [(await enqueue_and_claim(store, worker)).lease for _ in range(3)]
        clock.advance(LEASE - timedelta(seconds=1))
        assert (await worker.beat(*leases, through=worker.claims)).alive
        clock.advance(LEASE - timedelta(seconds=1))

        assert list(await store.rescue(other.session, limit=10)) == []
        assert set(await settle(store, *(complete(lease) for lease in leases))) == {Receipt.APPLIED}

    async def test_an_unknown_session_is_not_alive_and_not_made(self, store: Store) -> None:
        before = await dump(store)

        reply = await ManualWorker(store).beat()

        assert not reply.alive
        assert await dump(store) == before

    async def test_a_deleted_session_is_not_alive(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        clock.advance(LEASE)
        rescuer = await worker_on(store)
        await store.rescue(rescuer.session, limit=10)

        assert not (await worker.beat(held.lease)).alive

    async def test_a_late_heartbeat_keeps_leases_not_taken_over(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        clock.advance(LEASE * 2)

        reply = await worker.beat(held.lease, through=worker.claims)

        assert (reply.alive, reply.lost) == (True, ())
        rescuer = await worker_on(store)
        assert list(await store.rescue(rescuer.session, limit=10)) == []

    async def test_a_heartbeat_may_shorten_the_lease(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        await worker.beat(lease_for=timedelta(seconds=1))
        clock.advance(1)
        rescuer = await worker_on(store)

        await store.rescue(rescuer.session, limit=10)

        assert not (await worker.beat()).alive


class TestHeartbeatReplies:
    async def test_lost_leases_are_named(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        lost, ended = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        await settle_now(store, complete(ended))
        clock.advance(LEASE)
        rescuer = await worker_on(store)
        await store.rescue(rescuer.session, limit=10)
        await worker.beat(opening=True)
        kept = await enqueue_and_claim(store, worker)

        reply = await worker.beat(lost.lease, ended.lease, kept.lease, through=worker.claims)

        assert reply.alive
        assert set(reply.lost) == {lost.lease, ended.lease}

    async def test_a_request_to_stop_is_repeated_until_the_task_ends(self, store: Store) -> None:
        worker = await worker_on(store)
        stopping, spared = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        await cancel(store, stopping.task.id)

        for _ in range(2):
            reply = await worker.beat(stopping.lease, spared.lease, through=worker.claims)
            assert (reply.lost, reply.cancel) == ((), (stopping.task.id,))

    async def test_progress_is_kept(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        half = Progress(fraction=0.5, message="half way — ½")

        await worker.report(ProgressReport(held.lease, half), held=[held.lease])

        assert (await load(store, held.task.id)).progress == half

    async def test_progress_under_a_stale_lease_changes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        stale = await enqueue_and_claim(store, worker)
        clock.advance(LEASE)
        rescuer = await worker_on(store)
        (rescued,) = await store.rescue(rescuer.session, limit=10)

        await rescuer.report(ProgressReport(stale.lease, Progress(fraction=0.9)), held=[rescued.lease])

        assert await load(store, stale.task.id) == rescued.task

    async def test_progress_is_reset_at_the_next_claim(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await worker.report(ProgressReport(held.lease, Progress(fraction=0.5)), held=[held.lease])
        await worker.beat(through=worker.claims)

        again = await worker.claim_one(held.task.queue)

        assert again.task.progress is None


class TestLostReplies:
    """A claim whose reply never arrived: the worker is alive, but does not know the tasks."""

    async def test_unacknowledged_claims_are_released_uncounted_with_a_new_fence(self, store: Store) -> None:
        worker = await worker_on(store)
        unacknowledged = await enqueue_and_claim(store, worker)
        known = await enqueue_and_claim(store, worker)

        reply = await worker.beat(known.lease, through=worker.claims)

        task = await load(store, unacknowledged.task.id)
        assert (reply.alive, reply.lost) == (True, ())
        assert (task.state, task.attempt, task.session) == (State.READY, 0, None)
        assert task.fence > unacknowledged.task.fence
        assert await load(store, known.task.id) == known.task

    async def test_a_released_task_cannot_be_settled_with_the_old_lease(self, store: Store) -> None:
        worker = await worker_on(store)
        unacknowledged = await enqueue_and_claim(store, worker)
        await worker.beat(through=worker.claims)
        before = await dump(store)

        assert await settle(store, complete(unacknowledged)) == (Receipt.LOST,)
        assert await dump(store) == before

    async def test_a_task_released_by_a_heartbeat_keeps_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        first = await enqueue_one(store)
        await worker.claim_one()
        clock.advance(1)
        await enqueue_one(store)

        await worker.beat(through=worker.claims)

        assert (await worker.claim_one()).task.id == first

    async def test_claims_above_through_are_left_alone(self, store: Store) -> None:
        worker = await worker_on(store)
        await store.enqueue(some_tasks(3))
        received = await worker.claim_one()
        under_way = [await worker.claim_one(), await worker.claim_one()]

        await worker.beat(received.lease, through=1)

        assert [await load(store, one.task.id) for one in under_way] == [one.task for one in under_way]

        await worker.beat(received.lease, through=2)

        states = [await state_of(store, one.task.id) for one in (received, *under_way)]
        assert states == [State.RUNNING, State.READY, State.RUNNING]

    async def test_unacknowledged_claims_of_a_settle_are_released(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await enqueue_one(store, queue="q")
        settled = await store.settle([complete(held)], worker.next_claim(1, "q"))

        await worker.beat(through=worker.claims)

        (unacknowledged,) = settled.claimed
        assert await state_of(store, unacknowledged.task.id) is State.READY

    async def test_a_task_held_by_an_old_lease_only_is_released(self, store: Store) -> None:
        worker = await worker_on(store)
        old = await enqueue_and_claim(store, worker)
        await worker.beat(through=worker.claims)
        again = await worker.claim_one(old.task.queue)

        reply = await worker.beat(old.lease, through=worker.claims)

        assert reply.lost == (old.lease,)
        assert await state_of(store, again.task.id) is State.READY

    async def test_an_unacknowledged_task_requested_to_stop_is_cancelled(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        unacknowledged = await enqueue_and_claim(store, worker)
        await cancel(store, unacknowledged.task.id)

        await worker.beat(through=worker.claims)

        task = await load(store, unacknowledged.task.id)
        assert (task.state, task.finished_at, task.session) == (State.CANCELLED, clock.now(), None)

    async def test_other_sessions_tasks_are_left_alone(self, store: Store) -> None:
        worker, other = await worker_on(store), await worker_on(store)
        theirs = await enqueue_and_claim(store, other)

        reply = await worker.beat(through=1000)

        assert reply == await worker.beat(through=1000)
        assert await load(store, theirs.task.id) == theirs.task

    async def test_a_rescue_whose_reply_was_lost_keeps_its_attempt_counted(
        self, store: Store, clock: ManualClock
    ) -> None:
        crashed = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(LEASE)
        rescuer = await worker_on(store)
        (rescued,) = await store.rescue(rescuer.session, limit=10)

        await rescuer.beat()

        task = await load(store, crashed.task.id)
        assert (task.state, task.attempt, task.session) == (State.READY, 1, None)
        assert task.fence > rescued.task.fence
        assert await settle(store, complete(Lease(task.id, rescued.task.fence))) == (Receipt.LOST,)
