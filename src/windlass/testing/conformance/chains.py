"""Chains and groups: successors appear in the transaction that completes their predecessor."""

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
    bury,
    cancel,
    complete,
    discard,
    dump,
    enqueue_and_claim,
    enqueue_one,
    exists,
    load,
    replay,
    retry,
    settle,
    settle_now,
    some_tasks,
    state_of,
    stop,
    worker_on,
)

LONG = timedelta(days=100)


class TestSuccessors:
    async def test_a_successor_appears_with_the_completion(self, store: Store, clock: ManualClock) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(1)
        now = a_task(root=held.task.id)
        later = a_task(root=held.task.id, delay=timedelta(seconds=5))

        await settle_now(store, complete(held, b"1", now, later))

        assert [task.id for task in await all_tasks(store, Filter(root=held.task.id))] == [
            held.task.id,
            now.id,
            later.id,
        ]
        assert await state_of(store, now.id) is State.READY
        assert (await load(store, later.id)).run_at == clock.now() + timedelta(seconds=5)
        assert await state_of(store, later.id) is State.SCHEDULED

    async def test_a_lost_settle_has_no_successors(self, store: Store, clock: ManualClock) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        clock.advance(LEASE)
        rescuer = await worker_on(store)
        await store.rescue(rescuer.session, limit=10)
        before = await dump(store)

        assert await settle(store, complete(held, b"1", a_task())) == (Receipt.LOST,)
        assert await dump(store) == before

    async def test_a_repeated_settle_does_not_double_its_successors(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        await settle_now(store, complete(held, b"1", a_task()))
        before = await dump(store)

        assert await settle(store, complete(held, b"1", a_task())) == (Receipt.REPEATED,)
        assert await dump(store) == before

    async def test_a_repeated_settle_does_not_bring_back_a_successor_that_ended(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        successor = a_task(queue="next")
        settled = complete(held, b"1", successor)
        await settle_now(store, settled)
        await settle_now(store, complete(await worker.claim_one("next")))

        assert await settle(store, settled) == (Receipt.REPEATED,)
        assert await state_of(store, successor.id) is State.COMPLETED


async def fail(store: Store, worker: ManualWorker, queue: str) -> str:
    """Claim and bury the next task of the queue; return its id."""
    claimed = await worker.claim_one(queue)
    await settle_now(store, bury(claimed))
    return claimed.task.id


class TestGroups:
    async def test_a_task_waits_for_all_its_predecessors(self, store: Store) -> None:
        worker = await worker_on(store)
        first, second = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        last = await enqueue_one(store, after=(first.task.id, second.task.id))
        await settle_now(store, complete(second))
        assert await state_of(store, last) is State.WAITING

        await settle_now(store, complete(first))

        assert await state_of(store, last) is State.READY

    async def test_predecessors_may_complete_in_one_batch(self, store: Store) -> None:
        worker = await worker_on(store)
        held = [await enqueue_and_claim(store, worker) for _ in range(3)]
        last = await enqueue_one(store, after=tuple(one.task.id for one in held))

        await settle_now(store, *(complete(one) for one in held))

        assert await state_of(store, last) is State.READY

    async def test_a_whole_group_is_one_batch(self, store: Store) -> None:
        worker = await worker_on(store)
        members = some_tasks(3)
        last = a_task(after=tuple(new.id for new in members))
        await store.enqueue([*members, last])

        claimed = await worker.claim(10)

        assert [one.task.id for one in claimed] == [new.id for new in members]
        await settle_now(store, *(complete(one) for one in claimed))
        assert (await worker.claim_one()).task.id == last.id

    async def test_the_same_predecessor_twice_is_one(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        last = await enqueue_one(store, after=(held.task.id, held.task.id))

        await settle_now(store, complete(held))

        task = await load(store, last)
        assert (task.state, task.after) == (State.READY, (held.task.id, held.task.id))

    async def test_completed_predecessors_are_not_waited_for(self, store: Store) -> None:
        worker = await worker_on(store)
        done, held = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        await settle_now(store, complete(done))

        both = await enqueue_one(store, after=(done.task.id, held.task.id))
        alone = await enqueue_one(store, after=(done.task.id,))

        assert await state_of(store, both) is State.WAITING
        assert await state_of(store, alone) is State.READY

    async def test_a_repeated_completion_unblocks_once(self, store: Store) -> None:
        worker = await worker_on(store)
        first, second = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        last = await enqueue_one(store, after=(first.task.id, second.task.id))
        await settle_now(store, complete(first))

        await settle(store, complete(first), complete(first))

        assert await state_of(store, last) is State.WAITING

    async def test_a_retry_of_a_predecessor_keeps_its_successor_waiting(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        last = await enqueue_one(store, after=(held.task.id,))

        await settle_now(store, retry(held))

        assert await state_of(store, last) is State.WAITING

    async def test_an_unblocked_task_is_not_due_early(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store, lease_for=LONG)
        first, second = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        early = await enqueue_one(store, after=(first.task.id,), delay=timedelta(minutes=1))
        due = await enqueue_one(store, after=(second.task.id,), delay=timedelta(minutes=1))
        await settle_now(store, complete(first))
        clock.advance(60)

        await settle_now(store, complete(second))

        assert await state_of(store, early) is State.SCHEDULED
        assert await state_of(store, due) is State.READY

    async def test_a_task_waits_for_a_dead_predecessor_until_its_replay(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        last = await enqueue_one(store, after=(held.task.id,))
        await settle_now(store, bury(held))
        assert await state_of(store, last) is State.WAITING
        await replay(store, held.task.id)
        assert await state_of(store, last) is State.WAITING

        await settle_now(store, complete(await worker.claim_one(held.task.queue)))

        assert await state_of(store, last) is State.READY

    async def test_a_task_enqueued_after_a_dead_one_waits_for_its_replay(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await settle_now(store, bury(held))
        last = await enqueue_one(store, after=(held.task.id,))
        assert await state_of(store, last) is State.WAITING
        await replay(store, held.task.id)

        await settle_now(store, complete(await worker.claim_one(held.task.queue)))

        assert await state_of(store, last) is State.READY

    @pytest.mark.parametrize("how", ["operator", "holder", "flag", "hand-back", "discard", "prune"])
    async def test_tasks_that_can_never_start_are_cancelled(
        self, store: Store, clock: ManualClock, how: str
    ) -> None:
        worker = await worker_on(store, lease_for=LONG)
        task_id = await enqueue_one(store, queue="q")
        other = await enqueue_one(store, queue="other")
        child = await enqueue_one(store, after=(task_id, other))
        grandchild = await enqueue_one(store, after=(child,))
        clock.advance(1)

        ended_at = await _lose(store, clock, worker, how)

        for waiting in (child, grandchild):
            task = await load(store, waiting)
            assert (task.state, task.finished_at) == (State.CANCELLED, ended_at)
            assert task.error is not None
        assert await state_of(store, other) is State.READY

    async def test_a_task_enqueued_after_a_cancelled_one_is_cancelled_at_once(self, store: Store) -> None:
        gone = await enqueue_one(store)
        await cancel(store, gone)
        child = a_task(after=(gone,))

        (answer, _) = await store.enqueue([child, a_task(after=(child.id,))])

        assert answer.created
        assert {task.state for task in await all_tasks(store)} == {State.CANCELLED}

    async def test_a_replayed_successor_waits_for_no_predecessor(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        child = await enqueue_one(store, queue="child", after=(held.task.id,))
        await cancel(store, child)
        await replay(store, child)
        again = await worker.claim_one("child")
        before = await load(store, child)

        await settle_now(store, complete(held))

        assert await load(store, child) == before == again.task

    async def test_a_cancelled_successor_is_not_unblocked(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        child = await enqueue_one(store, after=(held.task.id,))
        await cancel(store, child)

        await settle_now(store, complete(held))

        assert await state_of(store, child) is State.CANCELLED

    @pytest.mark.parametrize("completed", ["first", "last"])
    async def test_completing_one_predecessor_and_cancelling_another_in_one_batch_cancels_it(
        self, store: Store, completed: str
    ) -> None:
        worker = await worker_on(store)
        done, stopped = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        child = await enqueue_one(store, after=(done.task.id, stopped.task.id))
        batch = [complete(done), stop(stopped)]

        await settle_now(store, *(batch if completed == "first" else reversed(batch)))

        assert await state_of(store, child) is State.CANCELLED

    async def test_a_dead_predecessor_blocks_only_its_own_successors(self, store: Store) -> None:
        worker = await worker_on(store)
        first, second = some_tasks(2, queue="q")
        both = a_task(queue="x", after=(first.id, second.id))
        one = a_task(queue="x", after=(second.id,))
        await store.enqueue([first, second, both, one])
        assert await fail(store, worker, "q") == first.id

        await settle_now(store, complete(await worker.claim_one("q")))

        assert await state_of(store, both.id) is State.WAITING
        assert await state_of(store, one.id) is State.READY


async def _lose(store: Store, clock: ManualClock, worker: ManualWorker, how: str) -> object:
    """End the task of queue `q` without completing it; return the state its successors should have."""
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
        await settle_now(store, ending(claimed))
    if how == "discard":
        await discard(store, claimed.task.id)
    if how == "prune":
        clock.advance(timedelta(days=15))
        assert await store.prune(Retention(), limit=10) == 1
    assert await exists(store, claimed.task.id) == (how not in {"discard", "prune"})
    return clock.now()
