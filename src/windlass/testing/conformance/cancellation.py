"""Cancellation: who cancelled a task and why is stored, and told to whoever waited for it."""

from datetime import timedelta

import pytest

from ..._model.filter import By, CancelTasks, Discard
from ..._model.lease import Claimed
from ..._model.state import State
from ..._model.task import Task, TaskId
from .steps import BOOM, Ending, ManualWorker, StoreTest, a_task, bury, complete, release, retry, snooze, stop

ADA = By(who="ada", why="wrong list")
BOB = By(who="bob")


def said(task: Task) -> str:
    """What the task's error says."""
    assert task.error is not None
    assert task.error.type == "Cancelled"
    return task.error.message


class TestWhoCancelled(StoreTest):
    async def test_a_pending_task_records_who_cancelled_it_and_why(self) -> None:
        task_id = await self.enqueue_one()

        await self.act(CancelTasks(by=ADA), task_id)

        task = await self.load(task_id)
        assert (task.cancelled_by, task.cancel_reason) == ("ada", "wrong list")
        assert said(task) == "cancelled by ada: wrong list"

    async def test_without_a_reason_only_the_name_is_recorded(self) -> None:
        task_id = await self.enqueue_one()

        await self.act(CancelTasks(by=BOB), task_id)

        task = await self.load(task_id)
        assert (task.cancelled_by, task.cancel_reason) == ("bob", None)
        assert said(task) == "cancelled by bob"

    async def test_a_running_task_records_who_asked_it_to_stop(self, held: Claimed) -> None:
        await self.act(CancelTasks(by=ADA), held.task.id)

        task = await self.load(held.task.id)
        assert (task.state, task.cancel_requested) == (State.RUNNING, True)
        assert (task.cancelled_by, task.cancel_reason) == ("ada", "wrong list")

    async def test_the_first_who_asks_is_recorded(self, held: Claimed) -> None:
        await self.act(CancelTasks(by=ADA), held.task.id)

        assert list(await self.act(CancelTasks(by=BOB), held.task.id)) == [held.task.id]

        assert (await self.load(held.task.id)).cancelled_by == "ada"

    @pytest.mark.parametrize("ending", [stop, snooze, release])
    async def test_the_error_of_a_stopped_task_says_who_and_why(self, held: Claimed, ending: Ending) -> None:
        await self.act(CancelTasks(by=ADA), held.task.id)

        task = await self.settled(ending(held))

        assert task.state is State.CANCELLED
        assert said(task) == "cancelled by ada: wrong list"
        assert (task.cancelled_by, task.cancel_reason) == ("ada", "wrong list")

    async def test_an_error_of_the_handler_while_it_stops_is_kept(self, held: Claimed) -> None:
        await self.act(CancelTasks(by=ADA), held.task.id)

        task = await self.settled(retry(held))

        assert (task.state, task.error, task.cancelled_by) == (State.CANCELLED, BOOM, "ada")

    async def test_an_error_of_an_earlier_attempt_is_replaced(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker)
        await self.settle_now(retry(held))
        again = await worker.claim_one(held.task.queue)
        await self.act(CancelTasks(by=ADA), held.task.id)

        assert said(await self.settled(stop(again))) == "cancelled by ada: wrong list"

    async def test_a_task_whose_claim_was_lost_says_who_and_why(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        await self.act(CancelTasks(by=ADA), held.task.id)

        await worker.beat(through=worker.claims)

        task = await self.load(held.task.id)
        assert (task.state, task.cancelled_by) == (State.CANCELLED, "ada")
        assert said(task) == "cancelled by ada: wrong list"

    async def test_a_rescuer_sees_who_asked(self, held: Claimed) -> None:
        await self.act(CancelTasks(by=ADA), held.task.id)

        _, rescued = await self.take_over(held)

        assert (rescued.task.cancelled_by, rescued.task.cancel_reason) == ("ada", "wrong list")

    @pytest.mark.parametrize("ending", [complete, bury])
    async def test_a_task_that_ended_first_still_says_who_asked(self, held: Claimed, ending: Ending) -> None:
        await self.act(CancelTasks(by=ADA), held.task.id)

        task = await self.settled(ending(held))

        assert task.state is not State.CANCELLED
        assert (task.cancelled_by, task.cancel_reason) == ("ada", "wrong list")

    @pytest.mark.parametrize("running", [True, False])
    async def test_a_replay_clears_it(self, worker: ManualWorker, *, running: bool) -> None:
        if running:
            held = await self.enqueue_and_claim(worker, queue="default")
            task_id = held.task.id
            await self.act(CancelTasks(by=ADA), task_id)
            await self.settle_now(stop(held))
        else:
            task_id = await self.enqueue_one()
            await self.act(CancelTasks(by=ADA), task_id)

        await self.replay(task_id)

        again = (await worker.claim_one()).task
        assert (again.cancel_requested, again.cancelled_by, again.cancel_reason) == (False, None, None)


class TestCascade(StoreTest):
    async def chain(self, *before: TaskId) -> tuple[TaskId, TaskId]:
        """Enqueue a task that waits for others, and one that waits for that."""
        second = a_task(after=before)
        third = a_task(after=(second.id,))
        await self.store.enqueue([second, third])
        return second.id, third.id

    async def test_successors_name_the_predecessor_and_the_reason(self) -> None:
        first = await self.enqueue_one()
        second, third = await self.chain(first)

        await self.act(CancelTasks(by=ADA), first)

        cause = f"task {first} was cancelled by ada: wrong list"
        middle, last = await self.load(second), await self.load(third)
        assert said(middle) == f"task {first}, which it waited for, was cancelled by ada: wrong list"
        assert said(last) == f"task {second}, which it waited for, was cancelled, because {cause}"
        assert {(t.cancelled_by, t.cancel_reason) for t in (middle, last)} == {("ada", "wrong list")}

    async def test_successors_of_a_stopped_task_say_who_stopped_it(self, held: Claimed) -> None:
        second, _ = await self.chain(held.task.id)
        await self.act(CancelTasks(by=BOB), held.task.id)

        await self.settle_now(stop(held))

        task = await self.load(second)
        assert said(task) == f"task {held.task.id}, which it waited for, was cancelled by bob"
        assert task.cancelled_by == "bob"

    async def test_successors_of_a_task_that_stopped_itself_blame_nobody(self, held: Claimed) -> None:
        second, _ = await self.chain(held.task.id)

        await self.settle_now(stop(held))

        assert said(await self.load(second)) == f"task {held.task.id}, which it waited for, was cancelled"
        assert (await self.load(second)).cancelled_by is None

    async def test_successors_of_a_discarded_task_say_who_discarded_it(self, held: Claimed) -> None:
        second, _ = await self.chain(held.task.id)
        await self.settle_now(bury(held))

        await self.act(Discard(by=ADA), held.task.id)

        task = await self.load(second)
        assert said(task) == f"task {held.task.id}, which it waited for, died and was discarded"
        assert (task.cancelled_by, task.cancel_reason) == ("ada", "wrong list")

    async def test_a_task_behind_a_cancelled_one_names_it(self) -> None:
        fine, gone = await self.enqueue_one(delay=timedelta(days=1)), await self.enqueue_one()
        await self.act(CancelTasks(by=ADA), gone)

        second, _ = await self.chain(fine, gone)

        assert said(await self.load(second)) == f"task {gone}, which it waited for, had been cancelled"
