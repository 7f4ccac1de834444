"""Failures: tasks that failed alike are found and counted together."""

from datetime import timedelta

import pytest

from ...._model.filter import Dimension, Filter, Page, Replay
from ...._model.lease import Claimed
from ...._model.state import State
from ...._model.task import Error, TaskId
from ..steps import (
    NO_DELAY,
    OPERATOR,
    Ending,
    ManualWorker,
    StoreTest,
    bury,
    complete,
    release,
    retry,
    snooze,
)

GONE = [Error(type="NotFound", message=f"order {number} is gone") for number in range(4)]
LATE = Error(type="Timeout", message="no reply after 3.5 s")
DEAD = (State.DEAD,)


class TestFailures(StoreTest):
    async def died(self, worker: ManualWorker, error: Error, **changes: str) -> TaskId:
        """Enqueue a task and bury it; return its id."""
        claimed = await self.enqueue_and_claim(worker, **changes)
        await self.settle_now(bury(claimed, error))
        return claimed.task.id

    async def failure_of(self, task_id: TaskId) -> str | None:
        return (await self.load(task_id)).failure

    async def test_tasks_that_failed_alike_have_the_same_failure(self, worker: ManualWorker) -> None:
        found = {await self.failure_of(await self.died(worker, error)) for error in GONE}

        assert len(found) == 1
        assert None not in found

    async def test_another_error_or_type_is_another_failure(self, worker: ManualWorker) -> None:
        ids = [
            await self.died(worker, GONE[0]),
            await self.died(worker, LATE),
            await self.died(worker, GONE[0], type="other"),
        ]

        assert len({await self.failure_of(task_id) for task_id in ids}) == 3

    async def test_a_task_that_has_not_failed_has_none(self, worker: ManualWorker, held: Claimed) -> None:
        ready = await self.enqueue_one()
        done = await self.enqueue_and_claim(worker)
        await self.settle_now(complete(done))

        assert [await self.failure_of(one) for one in (ready, held.task.id, done.task.id)] == [None] * 3

    @pytest.mark.parametrize("delay", [NO_DELAY, timedelta(seconds=9)])
    async def test_a_task_that_will_be_retried_has_one(
        self, worker: ManualWorker, held: Claimed, delay: timedelta
    ) -> None:
        await self.settle_now(retry(held, delay, GONE[0]))

        assert await self.failure_of(held.task.id) == await self.failure_of(await self.died(worker, GONE[1]))

    async def test_the_last_error_counts(self, worker: ManualWorker, held: Claimed) -> None:
        await self.settle_now(retry(held, error=GONE[0]))
        again = await worker.claim_one(held.task.queue)
        assert again.task.failure is not None
        await self.settle_now(bury(again, LATE))

        assert await self.failure_of(held.task.id) == await self.failure_of(await self.died(worker, LATE))

    @pytest.mark.parametrize("ending", [snooze, release])
    async def test_it_stays_when_an_attempt_ends_without_an_error(
        self, worker: ManualWorker, held: Claimed, ending: Ending
    ) -> None:
        await self.settle_now(retry(held, error=LATE))
        failure = await self.failure_of(held.task.id)
        await self.settle_now(ending(await worker.claim_one(held.task.queue)))

        assert await self.failure_of(held.task.id) == failure is not None

    async def test_a_replayed_task_loses_it_when_it_completes(self, worker: ManualWorker) -> None:
        task_id = await self.died(worker, LATE, queue="q")
        await self.replay(task_id)
        assert await self.failure_of(task_id) is not None

        await self.settle_now(complete(await worker.claim_one("q")))

        assert await self.failure_of(task_id) is None

    async def test_a_cancelled_task_has_none(self, worker: ManualWorker, held: Claimed) -> None:
        await self.settle_now(retry(held, timedelta(seconds=9), LATE))
        await self.cancel(held.task.id)
        second = await self.enqueue_and_claim(worker)
        await self.cancel(second.task.id)
        await self.settle_now(retry(second, error=LATE))

        for task_id in (held.task.id, second.task.id):
            assert (await self.state_of(task_id), await self.failure_of(task_id)) == (State.CANCELLED, None)

    async def test_find_by_failure(self, worker: ManualWorker) -> None:
        gone = [await self.died(worker, error) for error in GONE]
        late = await self.died(worker, LATE)
        failures = [await self.failure_of(task_id) or "" for task_id in (gone[0], late)]

        first = await self.store.find(
            Filter(states=DEAD, failures=(failures[0],)), Page(limit=3, newest_first=True)
        )
        rest = await self.store.find(
            Filter(states=DEAD, failures=(failures[0],)),
            Page(limit=3, cursor=first.cursor, newest_first=True),
        )

        assert [task.id for task in (*first.items, *rest.items)] == gone[::-1]
        assert [task.id for task in await self.all_tasks(Filter(failures=(failures[1],)))] == [late]
        assert len(await self.all_tasks(Filter(failures=tuple(failures)))) == 5
        assert await self.all_tasks(Filter(failures=("0123456789abcdef",))) == []

    async def test_find_tasks_without_a_failure(self, worker: ManualWorker) -> None:
        dead = await self.died(worker, LATE)
        ready = await self.enqueue_one()
        done = await self.enqueue_and_claim(worker)
        await self.settle_now(complete(done))
        failure = await self.failure_of(dead) or ""

        assert {task.id for task in await self.all_tasks(Filter(failures=("",)))} == {ready, done.task.id}
        assert len(await self.all_tasks(Filter(failures=("", failure)))) == 3
        assert await self.all_tasks(Filter(states=DEAD, failures=("",))) == []

    async def test_count_by_failure(self, worker: ManualWorker) -> None:
        gone = [await self.died(worker, error) for error in GONE]
        late = await self.died(worker, LATE)
        await self.enqueue_one()
        ids = {await self.failure_of(gone[0]): 4, await self.failure_of(late): 1}

        dead = await self.store.count(Filter(states=DEAD), (Dimension.FAILURE,))
        every = await self.store.count(Filter(), (Dimension.FAILURE, Dimension.STATE))
        (one,) = await self.store.count(Filter(states=DEAD, failures=(str(await self.failure_of(late)),)), ())

        assert {count.values[0]: count.number for count in dead} == ids
        assert {count.values: count.number for count in every if count.values[0] == ""} == {("", "ready"): 1}
        assert one.number == 1

    async def test_act_on_the_tasks_of_a_failure(self, worker: ManualWorker) -> None:
        gone = [await self.died(worker, error) for error in GONE]
        late = await self.died(worker, LATE)
        failure = await self.failure_of(gone[0]) or ""

        replayed = await self.store.apply(Replay(by=OPERATOR), Filter(failures=(failure,)), limit=10)

        assert list(replayed.ids) == gone
        assert await self.state_of(late) is State.DEAD
