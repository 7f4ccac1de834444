"""Chains and groups: what follows appears in the very step that completes what it waited for."""

from datetime import timedelta

import pytest

from ..._model.filter import Filter
from ..._model.queue import Retention
from ..._model.state import State
from ..._model.verdict import Receipt
from ..._store.protocol import Store
from ..clock import ManualClock
from .steps import (
    LEASE,
    ManualWorker,
    a_task,
    all_tasks,
    applied,
    bury,
    cancel,
    complete,
    discard,
    dump,
    exists,
    get,
    replay,
    retry,
    running,
    settle,
    some_tasks,
    stand,
    state_of,
    stop,
    worker_on,
)

LONG = timedelta(days=100)


class TestSuccessors:
    async def test_a_successor_appears_with_the_completion(self, store: Store, clock: ManualClock) -> None:
        held = await running(store, await worker_on(store))
        clock.advance(1)
        now = a_task(root=held.task.id)
        later = a_task(root=held.task.id, delay=timedelta(seconds=5))

        await applied(store, complete(held, b"1", now, later))

        assert [task.id for task in await all_tasks(store, Filter(root=held.task.id))] == [
            held.task.id,
            now.id,
            later.id,
        ]
        assert await state_of(store, now.id) is State.READY
        assert (await get(store, later.id)).run_at == clock.now() + timedelta(seconds=5)
        assert await state_of(store, later.id) is State.SCHEDULED

    async def test_a_lost_settle_has_no_successors(self, store: Store, clock: ManualClock) -> None:
        held = await running(store, await worker_on(store))
        clock.advance(LEASE)
        rescuer = await worker_on(store)
        await store.rescue(rescuer.session, limit=10)
        before = await dump(store)

        assert await settle(store, complete(held, b"1", a_task())) == (Receipt.LOST,)
        assert await dump(store) == before

    async def test_a_repeated_settle_does_not_double_its_successors(self, store: Store) -> None:
        held = await running(store, await worker_on(store))
        await applied(store, complete(held, b"1", a_task()))
        before = await dump(store)

        assert await settle(store, complete(held, b"1", a_task())) == (Receipt.REPEATED,)
        assert await dump(store) == before

    async def test_a_repeated_settle_does_not_bring_back_a_successor_that_ended(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        successor = a_task(queue="next")
        settled = complete(held, b"1", successor)
        await applied(store, settled)
        await applied(store, complete(await worker.claim_one("next")))

        assert await settle(store, settled) == (Receipt.REPEATED,)
        assert await state_of(store, successor.id) is State.COMPLETED


async def fail(store: Store, worker: ManualWorker, queue: str) -> str:
    """The next task of the queue dies; answers with its id."""
    claimed = await worker.claim_one(queue)
    await applied(store, bury(claimed))
    return claimed.task.id


class TestGroups:
    async def test_a_task_waits_for_all_its_predecessors(self, store: Store) -> None:
        worker = await worker_on(store)
        first, second = await running(store, worker), await running(store, worker)
        last = await stand(store, after=(first.task.id, second.task.id))
        await applied(store, complete(second))
        assert await state_of(store, last) is State.WAITING

        await applied(store, complete(first))

        assert await state_of(store, last) is State.READY

    async def test_predecessors_may_complete_in_one_batch(self, store: Store) -> None:
        worker = await worker_on(store)
        held = [await running(store, worker) for _ in range(3)]
        last = await stand(store, after=tuple(one.task.id for one in held))

        await applied(store, *(complete(one) for one in held))

        assert await state_of(store, last) is State.READY

    async def test_a_whole_group_is_one_batch(self, store: Store) -> None:
        worker = await worker_on(store)
        members = some_tasks(3)
        last = a_task(after=tuple(new.id for new in members))
        await store.enqueue([*members, last])

        claimed = await worker.claim(10)

        assert [one.task.id for one in claimed] == [new.id for new in members]
        await applied(store, *(complete(one) for one in claimed))
        assert (await worker.claim_one()).task.id == last.id

    async def test_the_same_predecessor_twice_is_one(self, store: Store) -> None:
        held = await running(store, await worker_on(store))
        last = await stand(store, after=(held.task.id, held.task.id))

        await applied(store, complete(held))

        task = await get(store, last)
        assert (task.state, task.after) == (State.READY, (held.task.id, held.task.id))

    async def test_completed_predecessors_are_not_waited_for(self, store: Store) -> None:
        worker = await worker_on(store)
        done, held = await running(store, worker), await running(store, worker)
        await applied(store, complete(done))

        both = await stand(store, after=(done.task.id, held.task.id))
        alone = await stand(store, after=(done.task.id,))

        assert await state_of(store, both) is State.WAITING
        assert await state_of(store, alone) is State.READY

    async def test_a_repeated_completion_unblocks_once(self, store: Store) -> None:
        worker = await worker_on(store)
        first, second = await running(store, worker), await running(store, worker)
        last = await stand(store, after=(first.task.id, second.task.id))
        await applied(store, complete(first))

        await settle(store, complete(first), complete(first))

        assert await state_of(store, last) is State.WAITING

    async def test_a_retry_of_a_predecessor_keeps_it_waiting(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        last = await stand(store, after=(held.task.id,))

        await applied(store, retry(held))

        assert await state_of(store, last) is State.WAITING

    async def test_an_unblocked_task_is_not_early(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store, lease_for=LONG)
        first, second = await running(store, worker), await running(store, worker)
        early = await stand(store, after=(first.task.id,), delay=timedelta(minutes=1))
        due = await stand(store, after=(second.task.id,), delay=timedelta(minutes=1))
        await applied(store, complete(first))
        clock.advance(60)

        await applied(store, complete(second))

        assert await state_of(store, early) is State.SCHEDULED
        assert await state_of(store, due) is State.READY

    async def test_it_stays_while_a_predecessor_is_dead_and_goes_on_after_its_replay(
        self, store: Store
    ) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        last = await stand(store, after=(held.task.id,))
        await applied(store, bury(held))
        assert await state_of(store, last) is State.WAITING
        await replay(store, held.task.id)
        assert await state_of(store, last) is State.WAITING

        await applied(store, complete(await worker.claim_one(held.task.queue)))

        assert await state_of(store, last) is State.READY

    async def test_one_enqueued_behind_the_dead_waits_for_the_replay(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        await applied(store, bury(held))
        last = await stand(store, after=(held.task.id,))
        assert await state_of(store, last) is State.WAITING
        await replay(store, held.task.id)

        await applied(store, complete(await worker.claim_one(held.task.queue)))

        assert await state_of(store, last) is State.READY

    @pytest.mark.parametrize("how", ["operator", "holder", "flag", "hand-back", "discard", "prune"])
    async def test_what_can_never_start_is_cancelled_with_all_that_waits_for_it(
        self, store: Store, clock: ManualClock, how: str
    ) -> None:
        worker = await worker_on(store, lease_for=LONG)
        task_id = await stand(store, queue="q")
        other = await stand(store, queue="other")
        child = await stand(store, after=(task_id, other))
        grandchild = await stand(store, after=(child,))
        clock.advance(1)

        ended_at = await _lose(store, clock, worker, how)

        for waiting in (child, grandchild):
            task = await get(store, waiting)
            assert (task.state, task.finished_at) == (State.CANCELLED, ended_at)
            assert task.error is not None
        assert await state_of(store, other) is State.READY

    async def test_one_enqueued_behind_the_cancelled_is_cancelled_at_once(self, store: Store) -> None:
        gone = await stand(store)
        await cancel(store, gone)
        child = a_task(after=(gone,))

        (answer, _) = await store.enqueue([child, a_task(after=(child.id,))])

        assert answer.created
        assert {task.state for task in await all_tasks(store)} == {State.CANCELLED}

    async def test_a_replayed_successor_waits_for_nobody(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        child = await stand(store, queue="child", after=(held.task.id,))
        await cancel(store, child)
        await replay(store, child)
        again = await worker.claim_one("child")
        before = await get(store, child)

        await applied(store, complete(held))

        assert await get(store, child) == before == again.task

    async def test_a_cancelled_successor_is_not_unblocked(self, store: Store) -> None:
        held = await running(store, await worker_on(store))
        child = await stand(store, after=(held.task.id,))
        await cancel(store, child)

        await applied(store, complete(held))

        assert await state_of(store, child) is State.CANCELLED

    @pytest.mark.parametrize("completed", ["first", "last"])
    async def test_completing_one_predecessor_and_cancelling_another_in_one_batch_cancels_it(
        self, store: Store, completed: str
    ) -> None:
        worker = await worker_on(store)
        done, stopped = await running(store, worker), await running(store, worker)
        child = await stand(store, after=(done.task.id, stopped.task.id))
        batch = [complete(done), stop(stopped)]

        await applied(store, *(batch if completed == "first" else reversed(batch)))

        assert await state_of(store, child) is State.CANCELLED

    async def test_one_dead_predecessor_holds_up_all_that_wait_for_it_and_nothing_else(
        self, store: Store
    ) -> None:
        worker = await worker_on(store)
        first, second = some_tasks(2, queue="q")
        both = a_task(queue="x", after=(first.id, second.id))
        one = a_task(queue="x", after=(second.id,))
        await store.enqueue([first, second, both, one])
        assert await fail(store, worker, "q") == first.id

        await applied(store, complete(await worker.claim_one("q")))

        assert await state_of(store, both.id) is State.WAITING
        assert await state_of(store, one.id) is State.READY


async def _lose(store: Store, clock: ManualClock, worker: ManualWorker, how: str) -> object:
    """End the one task of queue `q` without completing it; answers with when its successors should have."""
    if how == "operator":
        (task,) = await all_tasks(store, Filter(queues=("q",)))
        await cancel(store, task.id)
        return clock.now()
    claimed = await worker.claim_one("q")
    if how in {"flag", "hand-back"}:
        await cancel(store, claimed.task.id)
    if how == "hand-back":
        await worker.beat(through=worker.claims)
    else:
        ending = {"holder": stop, "flag": retry}.get(how, bury)
        await applied(store, ending(claimed))
    if how == "discard":
        await discard(store, claimed.task.id)
    if how == "prune":
        clock.advance(timedelta(days=15))
        assert await store.prune(Retention(), limit=10) == 1
    assert await exists(store, claimed.task.id) == (how not in {"discard", "prune"})
    return clock.now()
