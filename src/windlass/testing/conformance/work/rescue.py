"""Rescue: tasks of expired sessions are taken over under a new fence, and never earlier."""

from datetime import timedelta

import pytest

from ...._ids import new_id
from ...._model.lease import Claimed
from ...._model.record import Session
from ...._model.state import State
from ...._model.verdict import Receipt
from ...._store.protocol import Store
from ....errors import SessionLost
from ..steps import LEASE, ManualWorker, StoreTest, bury, complete, retry, worker_on

LONG = timedelta(days=1)


class TestRescue(StoreTest):
    @pytest.fixture
    async def keeper(self, store: Store) -> ManualWorker:
        """A worker whose session does not expire in these tests."""
        return await worker_on(store, "keeper", lease_for=LONG)

    async def test_a_live_workers_tasks_are_left_alone(self, keeper: ManualWorker, held: Claimed) -> None:
        self.clock.advance(LEASE - timedelta(microseconds=1))

        assert list(await keeper.rescue()) == []
        assert await self.load(held.task.id) == held.task

    async def test_a_silent_workers_task_is_taken_over(self, keeper: ManualWorker, held: Claimed) -> None:
        self.clock.advance(LEASE)

        (rescued,) = await keeper.rescue()

        task = rescued.task
        assert (task.id, task.state, task.session) == (held.task.id, State.RUNNING, keeper.session)
        assert (task.attempt, task.fence) == (1, held.task.fence + 1)
        assert task == await self.load(held.task.id)

    async def test_a_rescued_task_still_names_its_last_worker(self, keeper: ManualWorker) -> None:
        held = await self.enqueue_and_claim(await self.new_worker("silent"))
        self.clock.advance(LEASE)

        (rescued,) = await keeper.rescue()
        await self.settle_now(retry(rescued))

        (line,) = await self.store.attempts(held.task.id)
        assert (rescued.task.worker, rescued.task.claimed_at) == ("silent", held.task.claimed_at)
        assert (line.worker, line.fence, line.number) == ("silent", rescued.task.fence, 1)

    async def test_a_rescued_task_is_settled_like_any_other(self, held: Claimed) -> None:
        _, rescued = await self.take_over(held)

        assert await self.settle(complete(held), bury(rescued)) == (Receipt.LOST, Receipt.APPLIED)
        assert await self.state_of(held.task.id) is State.DEAD

    async def test_a_task_is_rescued_once(self, keeper: ManualWorker, held: Claimed) -> None:
        first, _ = await self.take_over(held)

        async with self.unchanged():
            assert list(await first.rescue()) == []
            assert list(await keeper.rescue()) == []

    async def test_a_rescuer_that_dies_is_rescued(self) -> None:
        held = await self.enqueue_and_claim(await self.new_worker("silent"))
        _, rescued = await self.take_over(held)

        second, again = await self.take_over(rescued)

        assert (again.task.id, again.task.worker) == (held.task.id, "silent")
        assert (again.task.attempt, again.task.session) == (1, second.session)
        assert again.task.fence > rescued.task.fence
        assert await self.settle(retry(rescued)) == (Receipt.LOST,)

    async def test_no_more_than_the_limit_and_the_rest_later(self, keeper: ManualWorker) -> None:
        silent = [await self.new_worker(), await self.new_worker()]
        held = {(await self.enqueue_and_claim(silent[n % 2])).task.id for n in range(5)}
        self.clock.advance(LEASE)

        parts = [await keeper.rescue(2) for _ in range(4)]

        assert [len(part) for part in parts] == [2, 2, 1, 0]
        assert {one.task.id for part in parts for one in part} == held

    async def test_a_rescue_keeps_the_request_to_stop(self, held: Claimed) -> None:
        await self.cancel(held.task.id)

        _, rescued = await self.take_over(held)
        await self.settle_now(retry(rescued))

        assert rescued.task.cancel_requested
        assert await self.state_of(held.task.id) is State.CANCELLED

    async def test_removing_a_session_makes_its_tasks_rescuable(
        self, keeper: ManualWorker, worker: ManualWorker, held: Claimed
    ) -> None:
        assert await self.store.remove(Session, worker.session)

        (rescued,) = await keeper.rescue()

        assert (rescued.task.id, rescued.task.session) == (held.task.id, keeper.session)
        assert not (await worker.beat(held.lease)).alive

    async def test_expired_sessions_without_leases_are_deleted(self, keeper: ManualWorker) -> None:
        holding = await self.new_worker("holding")
        for _ in range(2):
            await self.enqueue_and_claim(holding)
        await self.new_worker("idle")
        self.clock.advance(LEASE)

        await keeper.rescue(1)
        left = {session.worker.name for session in await self.all_records(Session)}
        await keeper.rescue(1)

        assert left == {"keeper", "holding"}
        assert [session.id for session in await self.all_records(Session)] == [keeper.session]

    @pytest.mark.parametrize("expired", [True, False])
    async def test_only_a_live_session_may_rescue(self, worker: ManualWorker, *, expired: bool) -> None:
        await self.enqueue_and_claim(worker)
        keeper = await self.new_worker("keeper")
        self.clock.advance(LEASE)

        async with self.refused(SessionLost):
            await self.store.rescue(keeper.session if expired else new_id(), limit=10)
