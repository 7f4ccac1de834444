"""Rescue: tasks of expired sessions are taken over under a new fence, and never earlier."""

from datetime import timedelta

import pytest

from ...._ids import new_id
from ...._model.record import Session
from ...._model.state import State
from ...._model.verdict import Receipt
from ...._store.protocol import Store
from ....errors import SessionLost
from ...clock import ManualClock
from ..steps import (
    LEASE,
    all_records,
    bury,
    cancel,
    complete,
    dump,
    enqueue_and_claim,
    load,
    retry,
    settle,
    settle_now,
    state_of,
    worker_on,
)

LONG = timedelta(days=1)


class TestRescue:
    async def test_a_live_workers_tasks_are_left_alone(self, store: Store, clock: ManualClock) -> None:
        keeper = await worker_on(store, "keeper", lease_for=LONG)
        held = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(LEASE - timedelta(microseconds=1))

        assert list(await store.rescue(keeper.session, limit=10)) == []
        assert await load(store, held.task.id) == held.task

    async def test_a_silent_workers_task_is_taken_over(self, store: Store, clock: ManualClock) -> None:
        keeper = await worker_on(store, "keeper", lease_for=LONG)
        held = await enqueue_and_claim(store, await worker_on(store, "silent"))
        clock.advance(LEASE)

        (rescued,) = await store.rescue(keeper.session, limit=10)

        task = rescued.task
        assert (task.id, task.state, task.session) == (held.task.id, State.RUNNING, keeper.session)
        assert (task.attempt, task.fence) == (1, held.task.fence + 1)
        assert task == await load(store, held.task.id)

    async def test_a_rescued_task_still_names_its_last_worker(self, store: Store, clock: ManualClock) -> None:
        keeper = await worker_on(store, "keeper", lease_for=LONG)
        held = await enqueue_and_claim(store, await worker_on(store, "silent"))
        clock.advance(LEASE)

        (rescued,) = await store.rescue(keeper.session, limit=10)
        await settle_now(store, retry(rescued))

        (line,) = await store.attempts(held.task.id)
        assert (rescued.task.worker, rescued.task.claimed_at) == ("silent", held.task.claimed_at)
        assert (line.worker, line.fence, line.number) == ("silent", rescued.task.fence, 1)

    async def test_a_rescued_task_is_settled_like_any_other(self, store: Store, clock: ManualClock) -> None:
        keeper = await worker_on(store, "keeper", lease_for=LONG)
        held = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(LEASE)
        (rescued,) = await store.rescue(keeper.session, limit=10)

        assert await settle(store, complete(held), bury(rescued)) == (Receipt.LOST, Receipt.APPLIED)
        assert await state_of(store, held.task.id) is State.DEAD

    async def test_a_task_is_rescued_once(self, store: Store, clock: ManualClock) -> None:
        first = await worker_on(store, "keeper", lease_for=LONG)
        second = await worker_on(store, "another", lease_for=LONG)
        await enqueue_and_claim(store, await worker_on(store))
        clock.advance(LEASE)
        await store.rescue(first.session, limit=10)
        before = await dump(store)

        assert list(await store.rescue(first.session, limit=10)) == []
        assert list(await store.rescue(second.session, limit=10)) == []
        assert await dump(store) == before

    async def test_a_rescuer_that_dies_is_rescued(self, store: Store, clock: ManualClock) -> None:
        held = await enqueue_and_claim(store, await worker_on(store, "silent"))
        clock.advance(LEASE)
        first = await worker_on(store, "first")
        (rescued,) = await store.rescue(first.session, limit=10)
        clock.advance(LEASE)
        second = await worker_on(store, "second")

        (again,) = await store.rescue(second.session, limit=10)

        assert (again.task.id, again.task.worker) == (held.task.id, "silent")
        assert (again.task.attempt, again.task.session) == (1, second.session)
        assert again.task.fence > rescued.task.fence
        assert await settle(store, retry(rescued)) == (Receipt.LOST,)

    async def test_no_more_than_the_limit_and_the_rest_later(self, store: Store, clock: ManualClock) -> None:
        keeper = await worker_on(store, "keeper", lease_for=LONG)
        silent = [await worker_on(store), await worker_on(store)]
        held = {(await enqueue_and_claim(store, silent[n % 2])).task.id for n in range(5)}
        clock.advance(LEASE)

        parts = [await store.rescue(keeper.session, limit=2) for _ in range(4)]

        assert [len(part) for part in parts] == [2, 2, 1, 0]
        assert {one.task.id for part in parts for one in part} == held

    async def test_a_rescue_keeps_the_request_to_stop(self, store: Store, clock: ManualClock) -> None:
        keeper = await worker_on(store, "keeper", lease_for=LONG)
        held = await enqueue_and_claim(store, await worker_on(store))
        await cancel(store, held.task.id)
        clock.advance(LEASE)

        (rescued,) = await store.rescue(keeper.session, limit=10)
        await settle_now(store, retry(rescued))

        assert rescued.task.cancel_requested
        assert await state_of(store, held.task.id) is State.CANCELLED

    async def test_removing_a_session_makes_its_tasks_rescuable(self, store: Store) -> None:
        keeper = await worker_on(store, "keeper")
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        assert await store.remove(Session, worker.session)

        (rescued,) = await store.rescue(keeper.session, limit=10)

        assert (rescued.task.id, rescued.task.session) == (held.task.id, keeper.session)
        assert not (await worker.beat(held.lease)).alive

    async def test_expired_sessions_without_leases_are_deleted(
        self, store: Store, clock: ManualClock
    ) -> None:
        keeper = await worker_on(store, "keeper", lease_for=LONG)
        holding = await worker_on(store, "holding")
        for _ in range(2):
            await enqueue_and_claim(store, holding)
        await worker_on(store, "idle")
        clock.advance(LEASE)

        await store.rescue(keeper.session, limit=1)
        left = {session.worker.name for session in await all_records(store, Session)}
        await store.rescue(keeper.session, limit=1)

        assert left == {"keeper", "holding"}
        assert [session.id for session in await all_records(store, Session)] == [keeper.session]

    @pytest.mark.parametrize("expired", [True, False])
    async def test_only_a_live_session_may_rescue(
        self, store: Store, clock: ManualClock, *, expired: bool
    ) -> None:
        keeper = await worker_on(store, "keeper")
        await enqueue_and_claim(store, await worker_on(store))
        clock.advance(LEASE)
        before = await dump(store)

        with pytest.raises(SessionLost):
            await store.rescue(keeper.session if expired else new_id(), limit=10)

        assert await dump(store) == before
