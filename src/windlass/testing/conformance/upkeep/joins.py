"""Joins: what a task takes results of is kept until it has completed, or its own record is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from ...._model.filter import Filter, Replay
from ...._model.lease import Claimed
from ...._model.queue import QueueSettings, Retention
from ...._model.state import State
from ...._model.task import TaskId
from ...._store.protocol import Store
from ....errors import NotFound
from ..steps import OPERATOR, ManualWorker, StoreTest, a_task, bury, complete, retry, some_tasks, stop

LONG = timedelta(days=365)
WEEK = timedelta(
    days=9
)  # longer than completed tasks are kept, by more than the day that a store may be late
RESULTS = {"queue": "last", "result_into": "results"}

Makes = Callable[["TestJoins", ManualWorker], Awaitable[tuple[TaskId, list[TaskId]]]]


async def group(test: "TestJoins", worker: ManualWorker) -> tuple[TaskId, list[TaskId]]:
    """A task that waited for two others."""
    members = [await test.enqueue_and_claim(worker) for _ in range(2)]
    last = await test.enqueue_one(after=tuple(one.task.id for one in members), **RESULTS)
    await test.settle_now(*(complete(one, b'"r"') for one in members))
    return last, [one.task.id for one in members]


async def one_batch(test: "TestJoins", worker: ManualWorker) -> tuple[TaskId, list[TaskId]]:
    """A task that was enqueued together with those it waited for."""
    members = some_tasks(2, queue="members")
    last = a_task(after=tuple(new.id for new in members), **RESULTS)
    await test.store.enqueue([*members, last])
    await test.settle_now(*(complete(one, b'"r"') for one in await worker.claim(2, "members")))
    return last.id, [new.id for new in members]


async def after_completed(test: "TestJoins", worker: ManualWorker) -> tuple[TaskId, list[TaskId]]:
    """A task that was enqueued when both had completed."""
    members = [await test.enqueue_and_settle(worker, lambda one: complete(one, b'"r"')) for _ in range(2)]
    ids = [one.task.id for one in members]
    return await test.enqueue_one(after=tuple(ids), **RESULTS), ids


async def chain(test: "TestJoins", worker: ManualWorker) -> tuple[TaskId, list[TaskId]]:
    """A task that waited for the end of a chain."""
    first, second = await test.enqueue_and_claim(worker), await test.enqueue_and_claim(worker)
    last = await test.enqueue_one(after=(first.task.id, second.task.id), **RESULTS)
    end = a_task(queue="chain", before=(last,))
    await test.settle_now(complete(first, b"1", end), complete(second, b'"r"'))
    await test.settle_now(complete(await worker.claim_one("chain"), b'"r"'))
    return last, [first.task.id, second.task.id, end.id]


async def nested(test: "TestJoins", worker: ManualWorker) -> tuple[TaskId, list[TaskId]]:
    """A task that waited for another join, which has completed."""
    inner, members = await group(test, worker)
    outer = await test.enqueue_one(after=(inner,), **{**RESULTS, "queue": "outer"})
    await test.settle_now(complete(await worker.claim_one("last"), b'"r"'))
    assert await test.prune(WEEK) == len(members)
    return outer, [inner]


ways = pytest.mark.parametrize("make", [group, one_batch, after_completed, chain, nested])


class TestJoins(StoreTest):
    @pytest.fixture
    async def worker(self) -> ManualWorker:
        await self.store.prune(Retention(), limit=1)  # On Postgres it creates the days of the history.
        return await self.new_worker(lease_for=LONG)

    async def prune(self, later: timedelta = WEEK, retention: Retention | None = None) -> int:
        """Prune after this time; return how many records were deleted."""
        self.clock.advance(later)
        return (await self.store.prune(retention or Retention(), limit=100)).number

    async def number_of(self, ids: list[TaskId]) -> int:
        """Return how many of these tasks have a record."""
        return len(await self.all_tasks(Filter(ids=tuple(ids))))

    async def run_last(self, worker: ManualWorker, last: TaskId, members: list[TaskId]) -> None:
        """Claim the join and complete it: its results must be there, and go with the next prune."""
        claimed = await worker.claim_one((await self.load(last)).queue)
        assert claimed.task.id == last
        assert await self.number_of(members) == len(members)
        assert (await self.load(members[-1])).result == b'"r"'
        await self.settle_now(complete(claimed))
        assert await self.prune(2 * WEEK) == len(members) + 1
        assert await self.all_tasks() == []

    @ways
    async def test_results_are_kept_while_the_join_is_ready_in_a_paused_queue(
        self, worker: ManualWorker, make: Makes
    ) -> None:
        last, members = await make(self, worker)
        queue = (await self.load(last)).queue
        await self.store.put(QueueSettings(name=queue, paused=True))

        assert await self.prune() == 0

        await self.store.put(QueueSettings(name=queue))
        await self.run_last(worker, last, members)

    @ways
    async def test_results_are_kept_between_two_attempts(self, worker: ManualWorker, make: Makes) -> None:
        last, members = await make(self, worker)
        await self.settle_now(retry(await worker.claim_one((await self.load(last)).queue), delay=WEEK))

        assert await self.prune() == 0

        assert (await self.store.promote(10)).number == 1
        await self.run_last(worker, last, members)

    @ways
    async def test_results_are_kept_while_the_join_is_running(
        self, worker: ManualWorker, make: Makes
    ) -> None:
        last, members = await make(self, worker)
        claimed = await worker.claim_one((await self.load(last)).queue)

        assert await self.prune() == 0

        assert await self.number_of(members) == len(members)
        await self.settle_now(retry(claimed))
        await self.run_last(worker, last, members)

    @ways
    async def test_results_are_kept_for_the_replay_of_a_dead_join(
        self, worker: ManualWorker, make: Makes
    ) -> None:
        last, members = await make(self, worker)
        for payload in (None, b'{"edited":1}'):
            await self.settle_now(bury(await worker.claim_one((await self.load(last)).queue)))
            assert await self.prune() == 0
            assert await self.replay(last, payload=payload) == (last,)

        await self.run_last(worker, last, members)

    async def test_results_are_kept_for_a_replay_by_filter_spread_over_time(
        self, worker: ManualWorker
    ) -> None:
        last, members = await group(self, worker)
        await self.settle_now(bury(await worker.claim_one("last")))
        dead = await self.enqueue_and_settle(worker, bury, queue="last")
        assert await self.prune() == 0
        action = Replay(by=OPERATOR, run_at=self.clock.now() + WEEK, interval=timedelta(seconds=1))

        await self.store.apply(action, Filter(states=(State.DEAD,), queues=("last",)), limit=10)
        assert await self.prune() == 0

        self.clock.advance(1)
        await self.store.promote(10)
        ready = {one.task.id: one for one in await worker.claim(2, "last")}
        assert {*ready} == {last, dead.task.id}
        assert await self.number_of(members) == len(members)

    @ways
    async def test_results_of_a_cancelled_join_are_kept_for_its_replay(
        self, worker: ManualWorker, make: Makes
    ) -> None:
        last, members = await make(self, worker)
        self.clock.advance(timedelta(days=3))
        await self.cancel(last)

        assert await self.prune(timedelta(days=6)) == 0

        assert await self.replay(last) == (last,)
        await self.run_last(worker, last, members)

    async def test_results_are_kept_for_a_join_that_was_cancelled_while_it_waited(
        self, worker: ManualWorker
    ) -> None:
        first, second = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        last = await self.enqueue_one(after=(first.task.id, second.task.id), **RESULTS)
        await self.settle_now(complete(first, b"1"))
        self.clock.advance(timedelta(days=5))
        await self.cancel(last)
        step = a_task(queue="chain", before=(last,))
        await self.settle_now(complete(second, b"2", step))
        await self.settle_now(complete(await worker.claim_one("chain"), b'"r"'))

        assert await self.prune(timedelta(days=6)) == 0

        await self.replay(last)
        await self.run_last(worker, last, [first.task.id, second.task.id, step.id])

    @pytest.mark.parametrize("how", ["dead", "cancelled", "discarded"])
    async def test_results_go_with_the_join_that_will_not_run_again(
        self, worker: ManualWorker, how: str
    ) -> None:
        last, members = await group(self, worker)
        claimed: Claimed = await worker.claim_one("last")
        await self.settle_now((stop if how == "cancelled" else bury)(claimed))
        if how == "discarded":
            await self.discard(last)
            assert await self.prune() == len(members)
        else:
            # Their own records first, as a prune may come to the members before it comes to the join.
            numbers = [await self.prune(2 * WEEK), await self.prune(2 * WEEK)]
            assert sum(numbers) == len(members) + 1

        assert await self.all_tasks() == []

    async def test_a_task_that_takes_no_results_keeps_none_once_it_is_ready(
        self, worker: ManualWorker
    ) -> None:
        members = [await self.enqueue_and_claim(worker) for _ in range(2)]
        await self.enqueue_one(queue="last", after=tuple(one.task.id for one in members))
        await self.settle_now(*(complete(one, b"1") for one in members))

        assert await self.prune() == len(members)

    async def test_several_joins_keep_a_result_until_the_last_has_completed(
        self, worker: ManualWorker
    ) -> None:
        done = await self.enqueue_and_settle(worker, lambda one: complete(one, b'"r"'))
        first = await self.enqueue_one(after=(done.task.id,), **RESULTS)
        second = await self.enqueue_one(after=(done.task.id,), **{**RESULTS, "queue": "other"})
        claimed = await worker.claim_one("last")
        assert claimed.task.id == first
        await self.settle_now(complete(claimed))

        assert await self.prune() == 1

        claimed = await worker.claim_one("other")
        assert claimed.task.id == second
        assert (await self.load(done.task.id)).result == b'"r"'
        await self.settle_now(complete(claimed))
        assert await self.prune() == 2

    async def test_a_repeated_completion_after_the_prune_changes_nothing(self, worker: ManualWorker) -> None:
        _, members = await group(self, worker)
        ending = complete(await worker.claim_one("last"))
        await self.settle_now(ending)
        assert await self.prune() == len(members) + 1

        async with self.unchanged():
            await self.store.settle([ending])

    async def test_a_discarded_predecessor_is_gone_though_the_join_was_replayed(
        self, worker: ManualWorker
    ) -> None:
        """A person may delete what a join waits for: it is cancelled, and keeps the rest for its replay."""
        first, second = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        last = await self.enqueue_one(after=(first.task.id, second.task.id), **RESULTS)
        await self.settle_now(complete(first, b"1"), bury(second))
        await self.discard(second.task.id)
        assert await self.state_of(last) is State.CANCELLED

        assert await self.prune(timedelta(0), Retention(completed=timedelta(0))) == 0

        assert await self.exists(first.task.id)
        assert await self.prune(WEEK) + await self.prune() == 2
        assert await self.all_tasks() == []

    async def test_results_that_are_needed_hold_up_nothing_behind_them(self, worker: ManualWorker) -> None:
        await group(self, worker)
        for _ in range(5):
            await self.enqueue_and_settle(worker, complete)
        self.clock.advance(timedelta(hours=2))
        retention = Retention(completed=timedelta(hours=1))

        numbers = [(await self.store.prune(retention, limit=2)).number for _ in range(4)]

        assert numbers == [2, 2, 1, 0]

    async def test_needed_results_of_one_instant_hide_none_behind_them(self, worker: ManualWorker) -> None:
        done = [(await self.enqueue_and_settle(worker, complete, queue="q")).task.id for _ in range(9)]
        await self.enqueue_one(after=(*done[:4], *done[5:8]), **RESULTS)
        self.clock.advance(timedelta(hours=2))
        retention = Retention(completed=timedelta(hours=1))

        numbers = [(await self.store.prune(retention, limit=1)).number for _ in range(3)]

        assert numbers == [1, 1, 0]
        assert await self.number_of(done) == 7

    async def test_a_replay_and_a_prune_at_once_leave_no_join_without_its_results(
        self, worker: ManualWorker, other: Store
    ) -> None:
        joins = [await group(self, worker) for _ in range(6)]
        for _ in joins:
            await self.settle_now(bury(await worker.claim_one("last")))
        self.clock.advance(2 * WEEK)
        ids = [last for last, _ in joins]

        assert await self.replayed(ids[0]) == 1  # the replay first: the prune keeps what it takes
        both = await asyncio.gather(
            *(self.replayed(last) for last in ids[1:3]),
            other.prune(Retention(), limit=100),
            *(self.replayed(last) for last in ids[3:5]),
            other.prune(Retention(), limit=100),
        )
        await other.prune(Retention(), limit=100)  # those may leave out what changes meanwhile
        assert await self.replayed(ids[5]) == 0  # the prune first: there is nothing to replay

        numbers = [1, *both[0:2], *both[3:5], 0]
        for (last, members), number in zip(joins, numbers, strict=True):
            assert await self.exists(last) == bool(number)
            if number:
                assert await self.state_of(last) is State.READY
                assert await self.number_of(members) == len(members)

    async def replayed(self, task_id: TaskId) -> int:
        """Replay a task, if it is there; return how many were replayed."""
        done = await self.store.apply(Replay(by=OPERATOR), Filter(ids=(task_id,)), limit=1)
        return len(done.ids)

    async def test_an_enqueue_and_a_prune_at_once_leave_no_join_without_its_results(
        self, worker: ManualWorker, other: Store
    ) -> None:
        done = [await self.enqueue_and_settle(worker, complete) for _ in range(6)]
        ids = [one.task.id for one in done]
        self.clock.advance(WEEK)
        short = Retention(completed=timedelta(hours=1))
        joins = [a_task(after=(task_id,), **RESULTS) for task_id in ids]

        answers = await asyncio.gather(
            *(self.store.enqueue([join]) for join in joins[:3]),
            other.prune(short, limit=100),
            *(self.store.enqueue([join]) for join in joins[3:]),
            other.prune(short, limit=100),
            return_exceptions=True,
        )

        assert {type(one) for one in answers if isinstance(one, BaseException)} <= {NotFound}
        for task_id, join in zip(ids, joins, strict=True):
            assert await self.exists(task_id) or not await self.exists(join.id)
