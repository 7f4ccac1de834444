"""Chains and groups: successors appear in the transaction that completes or buries their predecessor."""

from datetime import timedelta

import pytest

from ..._ids import new_id
from ..._model.filter import Filter
from ..._model.lease import Claimed
from ..._model.queue import Retention
from ..._model.state import State
from ..._model.task import TaskId
from ..._model.verdict import Receipt, Settlement
from .steps import BOOM, ManualWorker, StoreTest, a_task, bury, complete, replay, retry, some_tasks, stop

LONG = timedelta(days=100)


class TestSuccessors(StoreTest):
    async def test_a_successor_appears_with_the_completion(self, held: Claimed) -> None:
        self.clock.advance(1)
        now = a_task(root=held.task.id)
        later = a_task(root=held.task.id, delay=timedelta(seconds=5))

        await self.settle_now(complete(held, b"1", now, later))

        chain = [task.id for task in await self.all_tasks(Filter(root=held.task.id))]
        assert chain == [held.task.id, now.id, later.id]
        assert await self.state_of(now.id) is State.READY
        assert (await self.load(later.id)).run_at == self.clock.now() + timedelta(seconds=5)
        assert await self.state_of(later.id) is State.SCHEDULED

    async def test_a_lost_settle_has_no_successors(self, held: Claimed) -> None:
        await self.take_over(held)

        async with self.unchanged():
            assert await self.settle(complete(held, b"1", a_task())) == (Receipt.LOST,)

    async def test_a_repeated_settle_does_not_double_its_successors(self, held: Claimed) -> None:
        await self.settle_now(complete(held, b"1", a_task()))

        async with self.unchanged():
            assert await self.settle(complete(held, b"1", a_task())) == (Receipt.REPEATED,)

    async def test_a_repeated_settle_does_not_bring_back_a_successor_that_ended(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        successor = a_task(queue="next")
        settled = complete(held, b"1", successor)
        await self.settle_now(settled)
        await self.settle_now(complete(await worker.claim_one("next")))

        assert await self.settle(settled) == (Receipt.REPEATED,)
        assert await self.state_of(successor.id) is State.COMPLETED


class TestSuccessorsOnFailure(StoreTest):
    async def test_a_successor_appears_with_the_burial(self, worker: ManualWorker) -> None:
        dead, done = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        waiting = await self.enqueue_one(after=(dead.task.id,))
        now, later = a_task(root=dead.task.id), a_task(delay=timedelta(seconds=5))

        await self.settle_now(bury(dead, BOOM, now, later), complete(done, b"1", a_task()))

        assert await self.state_of(dead.task.id) is State.DEAD
        assert await self.state_of(now.id) is State.READY
        assert await self.state_of(later.id) is State.SCHEDULED
        assert await self.state_of(waiting) is State.WAITING
        assert len(await self.all_tasks(Filter(states=(State.READY,)))) == 2

    async def test_a_burial_that_is_lost_or_repeated_has_none(self, held: Claimed) -> None:
        _, rescued = await self.take_over(held)
        await self.settle_now(bury(rescued, BOOM, a_task()))

        async with self.unchanged():
            assert await self.settle(bury(held, BOOM, a_task())) == (Receipt.LOST,)
            assert await self.settle(bury(rescued, BOOM, a_task())) == (Receipt.REPEATED,)

    async def test_a_second_burial_does_not_bring_it_back(self, worker: ManualWorker, held: Claimed) -> None:
        successor = a_task(queue="next")
        await self.settle_now(bury(held, BOOM, successor))
        await self.settle_now(complete(await worker.claim_one("next")))
        await replay(self.store, held.task.id)

        await self.settle_now(bury(await worker.claim_one(held.task.queue), BOOM, successor))

        assert await self.state_of(held.task.id) is State.DEAD
        assert await self.state_of(successor.id) is State.COMPLETED


class TestGroups(StoreTest):
    async def test_a_task_waits_for_all_its_predecessors(self, worker: ManualWorker) -> None:
        first, second = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        last = await self.enqueue_one(after=(first.task.id, second.task.id))
        await self.settle_now(complete(second))
        assert await self.state_of(last) is State.WAITING

        await self.settle_now(complete(first))

        assert await self.state_of(last) is State.READY

    async def test_predecessors_may_complete_in_one_batch(self, worker: ManualWorker) -> None:
        held = [await self.enqueue_and_claim(worker) for _ in range(3)]
        last = await self.enqueue_one(after=tuple(one.task.id for one in held))

        await self.settle_now(*(complete(one) for one in held))

        assert await self.state_of(last) is State.READY

    async def test_a_whole_group_is_one_batch(self, worker: ManualWorker) -> None:
        members = some_tasks(3)
        last = a_task(after=tuple(new.id for new in members))
        await self.store.enqueue([*members, last])

        claimed = await worker.claim(10)

        assert [one.task.id for one in claimed] == [new.id for new in members]
        await self.settle_now(*(complete(one) for one in claimed))
        assert (await worker.claim_one()).task.id == last.id

    async def test_a_group_may_be_larger_than_what_one_waits_for_alone(self) -> None:
        members = some_tasks(1_100, root=(root := new_id()))
        last = a_task(root=root, after=tuple(one.id for one in members))

        assert all(one.created for one in await self.store.enqueue([*members, last]))
        assert await self.state_of(last.id) is State.WAITING

    async def test_the_same_predecessor_twice_is_one(self, held: Claimed) -> None:
        last = await self.enqueue_one(after=(held.task.id, held.task.id))

        await self.settle_now(complete(held))

        task = await self.load(last)
        assert (task.state, task.after) == (State.READY, (held.task.id, held.task.id))

    async def test_completed_predecessors_are_not_waited_for(self, worker: ManualWorker) -> None:
        done, held = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        await self.settle_now(complete(done))

        both = await self.enqueue_one(after=(done.task.id, held.task.id))
        alone = await self.enqueue_one(after=(done.task.id,))

        assert await self.state_of(both) is State.WAITING
        assert await self.state_of(alone) is State.READY

    async def test_a_repeated_completion_unblocks_once(self, worker: ManualWorker) -> None:
        first, second = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        last = await self.enqueue_one(after=(first.task.id, second.task.id))
        await self.settle_now(complete(first))

        await self.settle(complete(first), complete(first))

        assert await self.state_of(last) is State.WAITING

    async def test_a_retry_of_a_predecessor_keeps_its_successor_waiting(self, held: Claimed) -> None:
        last = await self.enqueue_one(after=(held.task.id,))

        await self.settle_now(retry(held))

        assert await self.state_of(last) is State.WAITING

    async def test_an_unblocked_task_is_not_due_early(self) -> None:
        worker = await self.new_worker(lease_for=LONG)
        first, second = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        early = await self.enqueue_one(after=(first.task.id,), delay=timedelta(minutes=1))
        due = await self.enqueue_one(after=(second.task.id,), delay=timedelta(minutes=1))
        await self.settle_now(complete(first))
        self.clock.advance(60)

        await self.settle_now(complete(second))

        assert await self.state_of(early) is State.SCHEDULED
        assert await self.state_of(due) is State.READY

    @pytest.mark.parametrize("enqueued", ["while it ran", "after its end"])
    async def test_a_task_waits_for_a_dead_predecessor_until_its_replay(
        self, worker: ManualWorker, held: Claimed, enqueued: str
    ) -> None:
        if enqueued == "after its end":
            await self.settle_now(bury(held))
        last = await self.enqueue_one(after=(held.task.id,))
        if enqueued == "while it ran":
            await self.settle_now(bury(held))
        assert await self.state_of(last) is State.WAITING
        await self.replay(held.task.id)
        assert await self.state_of(last) is State.WAITING

        await self.settle_now(complete(await worker.claim_one(held.task.queue)))

        assert await self.state_of(last) is State.READY

    @pytest.mark.parametrize("how", ["operator", "holder", "flag", "hand-back", "discard", "prune"])
    async def test_tasks_that_can_never_start_are_cancelled(self, how: str) -> None:
        worker = await self.new_worker(lease_for=LONG)
        task_id = await self.enqueue_one(queue="q")
        other = await self.enqueue_one(queue="other")
        child = await self.enqueue_one(after=(task_id, other))
        grandchild = await self.enqueue_one(after=(child,))
        self.clock.advance(1)

        await self._lose(task_id, worker, how)

        for waiting in (child, grandchild):
            task = await self.load(waiting)
            assert (task.state, task.finished_at) == (State.CANCELLED, self.clock.now())
            assert task.error is not None
        assert await self.state_of(other) is State.READY

    async def _lose(self, task_id: TaskId, worker: ManualWorker, how: str) -> None:
        """End the task of queue `q` without completing it."""
        if how == "operator":
            await self.cancel(task_id)
            return
        claimed = await worker.claim_one("q")
        if how in {"flag", "hand-back"}:
            await self.cancel(task_id)
        if how == "hand-back":
            await worker.beat(through=worker.claims)
        else:
            ending = {"holder": stop, "flag": retry}.get(how, bury)
            await self.settle_now(ending(claimed))
        if how == "discard":
            await self.discard(task_id)
        if how == "prune":
            self.clock.advance(timedelta(days=15))
            assert (await self.store.prune(Retention(), limit=10)).number == 1
        assert await self.exists(task_id) == (how not in {"discard", "prune"})

    async def test_a_task_enqueued_after_a_cancelled_one_is_cancelled_at_once(self) -> None:
        gone = await self.enqueue_one()
        await self.cancel(gone)
        child = a_task(after=(gone,))

        (answer, _) = await self.store.enqueue([child, a_task(after=(child.id,))])

        assert answer.created
        assert {task.state for task in await self.all_tasks()} == {State.CANCELLED}

    async def test_a_replayed_successor_waits_for_no_predecessor(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        child = await self.enqueue_one(queue="child", after=(held.task.id,))
        await self.cancel(child)
        await self.replay(child)
        again = await worker.claim_one("child")
        before = await self.load(child)

        await self.settle_now(complete(held))

        assert await self.load(child) == before == again.task

    async def test_a_cancelled_successor_is_not_unblocked(self, held: Claimed) -> None:
        child = await self.enqueue_one(after=(held.task.id,))
        await self.cancel(child)

        await self.settle_now(complete(held))

        assert await self.state_of(child) is State.CANCELLED

    @pytest.mark.parametrize("completed", ["first", "last"])
    async def test_completing_one_predecessor_and_cancelling_another_in_one_batch_cancels_it(
        self, worker: ManualWorker, completed: str
    ) -> None:
        done, stopped = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        child = await self.enqueue_one(after=(done.task.id, stopped.task.id))
        batch = [complete(done), stop(stopped)]

        await self.settle_now(*(batch if completed == "first" else reversed(batch)))

        assert await self.state_of(child) is State.CANCELLED

    async def test_a_dead_predecessor_blocks_only_its_own_successors(self, worker: ManualWorker) -> None:
        first, second = some_tasks(2, queue="q")
        both = a_task(queue="x", after=(first.id, second.id))
        one = a_task(queue="x", after=(second.id,))
        await self.store.enqueue([first, second, both, one])
        failing = await worker.claim_one("q")
        assert failing.task.id == first.id
        await self.settle_now(bury(failing))

        await self.settle_now(complete(await worker.claim_one("q")))

        assert await self.state_of(both.id) is State.WAITING
        assert await self.state_of(one.id) is State.READY


class TestChainsInGroups(StoreTest):
    """The last task of a group waits for the ends of the chains in it, whose steps join its predecessors."""

    async def a_group(self, worker: ManualWorker) -> tuple[Claimed, Claimed, TaskId]:
        """Two running tasks and one that waits for them."""
        first, second = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        return first, second, await self.enqueue_one(after=(first.task.id, second.task.id))

    @pytest.mark.parametrize("at_once", [True, False])
    async def test_a_task_waits_for_the_end_of_a_chain(self, worker: ManualWorker, *, at_once: bool) -> None:
        first, second, last = await self.a_group(worker)
        batch = [complete(first, b"1", a_task(queue="next", before=(last,))), complete(second)]
        await (self.settle_now(*batch) if at_once else self.settle_each(*batch))
        assert await self.state_of(last) is State.WAITING

        middle = await worker.claim_one("next")
        ends = some_tasks(2, queue="end", before=(last,))
        await self.settle_now(complete(middle, b"1", *ends))
        one, other = await worker.claim(2, "end")
        await self.settle_now(complete(one))
        assert await self.state_of(last) is State.WAITING

        await self.settle_now(complete(other))

        assert await self.state_of(last) is State.READY
        assert (await self.load(last)).after == (first.task.id, second.task.id)

    async def settle_each(self, *batch: Settlement) -> None:
        for settlement in batch:
            await self.settle_now(settlement)

    async def test_a_lost_settlement_adds_no_predecessor(self, held: Claimed) -> None:
        last = await self.enqueue_one(after=(held.task.id,))
        _, rescued = await self.take_over(held)
        await self.settle(complete(held, b"1", a_task(before=(last,))))

        await self.settle_now(complete(rescued))

        assert await self.state_of(last) is State.READY

    @pytest.mark.parametrize("how", ["cancel", "discard"])
    async def test_a_chain_that_never_ends_cancels_the_last(self, worker: ManualWorker, how: str) -> None:
        first, second, last = await self.a_group(worker)
        await self.settle_now(complete(first, b"1", a_task(queue="next", before=(last,))), complete(second))
        step = await worker.claim_one("next")
        await self.settle_now((stop if how == "cancel" else bury)(step))
        if how == "discard":
            assert await self.state_of(last) is State.WAITING
            await self.discard(step.task.id)

        task = await self.load(last)
        assert (task.state, task.error is not None and step.task.id in task.error.message) == (
            State.CANCELLED,
            True,
        )

    async def test_a_replayed_step_is_waited_for(self, worker: ManualWorker) -> None:
        first, second, last = await self.a_group(worker)
        await self.settle_now(complete(first, b"1", a_task(queue="next", before=(last,))), complete(second))
        step = await worker.claim_one("next")
        await self.settle_now(bury(step))
        await self.replay(step.task.id)

        await self.settle_now(complete(await worker.claim_one("next")))

        assert await self.state_of(last) is State.READY

    @pytest.mark.parametrize("how", ["cancelled", "replayed", "gone", "ready"])
    async def test_a_task_that_no_longer_waits_is_left_alone(self, worker: ManualWorker, how: str) -> None:
        first, second, last = await self.a_group(worker)
        if how in {"cancelled", "replayed"}:
            await self.cancel(last)
        if how == "replayed":
            await self.replay(last)
        if how == "ready":
            last = await self.enqueue_one()
        before = None if how == "gone" else await self.load(last)

        step = a_task(queue="next", before=(new_id() if how == "gone" else last,))
        await self.settle_now(complete(first, b"1", step))
        await self.settle_now(complete(await worker.claim_one("next")))

        assert await self.state_of(step.id) is State.COMPLETED
        if before is not None:
            assert await self.load(last) == before
        await self.settle_now(complete(second))

    async def test_a_task_enqueued_before_one_that_waits_is_waited_for(self, worker: ManualWorker) -> None:
        first, second, last = await self.a_group(worker)
        await self.enqueue_one(queue="next", before=(last,))
        await self.settle_now(complete(first), complete(second))
        assert await self.state_of(last) is State.WAITING

        await self.settle_now(complete(await worker.claim_one("next")))

        assert await self.state_of(last) is State.READY

    async def test_the_results_of_chains_are_kept_while_they_are_waited_for(self) -> None:
        worker = await self.new_worker(lease_for=LONG)
        first, second, last = await self.a_group(worker)
        step = a_task(queue="next", before=(last,))
        await self.settle_now(complete(first, b"1", step))
        await self.settle_now(complete(await worker.claim_one("next"), b"2"))
        self.clock.advance(timedelta(days=15))

        await self.store.prune(Retention(), limit=10)

        assert await self.exists(first.task.id)
        assert (await self.load(step.id)).result == b"2"
        await self.settle_now(complete(second))
        assert await self.state_of(last) is State.READY
