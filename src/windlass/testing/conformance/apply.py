"""Apply: operators' actions on tasks, and the audit log."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from ..._model.filter import Action, By, CancelTasks, Discard, Filter, Replay
from ..._model.lease import Claimed
from ..._model.record import Audit
from ..._model.state import State
from ..._model.verdict import Settlement
from ..._store.protocol import Store
from ..clock import ManualClock
from .steps import (
    OPERATOR,
    a_task,
    act,
    all_records,
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
    settle_now,
    some_tasks,
    state_of,
    stop,
    worker_on,
)


class TestCancel:
    async def test_a_pending_task_is_cancelled_at_once(self, store: Store, clock: ManualClock) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        ids = [
            await enqueue_one(store),
            await enqueue_one(store, delay=timedelta(seconds=5)),
            await enqueue_one(store, after=(held.task.id,)),
        ]
        clock.advance(1)

        done = await cancel(store, *ids)

        assert list(done) == ids
        for task_id in ids:
            task = await load(store, task_id)
            assert (task.state, task.finished_at, task.attempt) == (State.CANCELLED, clock.now(), 0)
            assert task.error is not None

    async def test_a_running_task_is_requested_to_stop_and_keeps_running(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)

        done = await cancel(store, held.task.id)

        task = await load(store, held.task.id)
        assert list(done) == [held.task.id]
        assert (task.state, task.cancel_requested, task.fence) == (State.RUNNING, True, held.task.fence)
        assert (await worker.beat(held.lease, through=worker.claims)).cancel == (held.task.id,)

    async def test_ended_tasks_are_untouched(self, store: Store) -> None:
        worker = await worker_on(store)
        ids = []
        for ending in (complete, bury, stop):
            claimed = await enqueue_and_claim(store, worker)
            await settle_now(store, ending(claimed))
            ids.append(claimed.task.id)
        before = await dump(store)

        assert list(await cancel(store, *ids)) == []
        assert await dump(store) == before

    async def test_a_replay_clears_the_request_to_stop(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await cancel(store, held.task.id)
        await settle_now(store, stop(held))
        await replay(store, held.task.id)

        again = await worker.claim_one(held.task.queue)

        assert not again.task.cancel_requested


class TestReplay:
    @pytest.mark.parametrize("ending", [bury, stop])
    async def test_dead_and_cancelled_tasks_are_replayed_with_all_their_attempts(
        self, store: Store, clock: ManualClock, ending: Callable[[Claimed], Settlement]
    ) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await settle_now(store, ending(held))
        clock.advance(1)

        done = await replay(store, held.task.id)

        task = await load(store, held.task.id)
        assert list(done) == [held.task.id]
        assert (task.state, task.attempt, task.run_at) == (State.READY, 0, clock.now())
        assert (task.fence, task.finished_at) == (held.task.fence, None)
        assert task.payload == held.task.payload

    async def test_a_cancelled_scheduled_task_is_replayed_as_ready(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        task_id = await enqueue_one(store, delay=timedelta(days=1))
        await cancel(store, task_id)

        await replay(store, task_id)

        assert (await worker.claim_one()).task.run_at == clock.now()

    async def test_a_replay_can_change_the_payload(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await settle_now(store, bury(held))

        await replay(store, held.task.id, payload=b'{"to":"eve"}')

        again = await worker.claim_one(held.task.queue)
        (line,) = await all_records(store, Audit)
        assert again.task.payload == b'{"to":"eve"}'
        assert line.detail


class TestDiscard:
    async def test_a_discarded_task_is_deleted(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        await settle_now(store, bury(held))

        done = await discard(store, held.task.id)

        assert list(done) == [held.task.id]
        assert not await exists(store, held.task.id)
        assert list(await store.attempts(held.task.id)) == []

    async def test_only_dead_tasks_can_be_discarded(self, store: Store) -> None:
        worker = await worker_on(store)
        ids = [await enqueue_one(store), (await enqueue_and_claim(store, worker)).task.id]
        for ending in (complete, stop):
            claimed = await enqueue_and_claim(store, worker)
            await settle_now(store, ending(claimed))
            ids.append(claimed.task.id)
        before = await dump(store)

        assert list(await discard(store, *ids)) == []
        assert await dump(store) == before


class TestFilters:
    async def test_only_matching_tasks_are_changed(self, store: Store) -> None:
        spared = await enqueue_one(store, queue="a")
        meant = await enqueue_one(store, queue="b")

        done = await store.apply(CancelTasks(by=OPERATOR), Filter(queues=("b",)), limit=10)

        assert list(done) == [meant]
        assert await state_of(store, spared) is State.READY

    async def test_the_limit_takes_the_oldest(self, store: Store) -> None:
        batch = some_tasks(5)
        await store.enqueue(batch[::-1])
        action = CancelTasks(by=OPERATOR)

        parts = [await store.apply(action, Filter(), limit=2) for _ in range(4)]

        ids = [new.id for new in batch]
        assert [list(part) for part in parts] == [ids[:2], ids[2:4], ids[4:], []]

    async def test_tasks_that_the_action_skips_do_not_count_towards_the_limit(self, store: Store) -> None:
        worker = await worker_on(store)
        for _ in range(3):
            await settle_now(store, complete(await enqueue_and_claim(store, worker)))
        pending = await enqueue_one(store)

        done = await store.apply(CancelTasks(by=OPERATOR), Filter(), limit=1)

        assert list(done) == [pending]

    async def test_successors_cancelled_along_are_not_in_the_result(self, store: Store) -> None:
        first, second = a_task(queue="q"), a_task(queue="q")
        await store.enqueue([first, second, a_task(queue="q", after=(second.id,))])

        done = await store.apply(CancelTasks(by=OPERATOR), Filter(queues=("q",)), limit=10)

        assert list(done) == [first.id, second.id]
        assert {task.state for task in await all_tasks(store)} == {State.CANCELLED}
        assert len(await all_records(store, Audit)) == 2


class TestAudit:
    @pytest.mark.parametrize(
        ("action", "word"),
        [
            (CancelTasks(by=By(who="ada", why="by mistake")), "cancel"),
            (Replay(by=By(who="ada", why="by mistake")), "replay"),
            (Discard(by=By(who="ada", why="by mistake")), "discard"),
        ],
    )
    async def test_the_audit_log_records_who_did_what_to_which_task_and_why(
        self, store: Store, clock: ManualClock, action: Action, word: str
    ) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        if word != "cancel":
            await settle_now(store, bury(held))
        clock.advance(1)

        await act(store, action, held.task.id)

        (line,) = await all_records(store, Audit)
        assert (line.who, line.why, line.action) == ("ada", "by mistake", word)
        assert (line.task_id, line.at, line.detail) == (held.task.id, clock.now(), "")
        assert line.id

    async def test_each_task_has_an_entry_in_order(self, store: Store) -> None:
        ids = [await enqueue_one(store) for _ in range(5)]

        await cancel(store, *ids)

        lines = await all_records(store, Audit)
        assert [line.task_id for line in lines] == ids
        assert len({line.id for line in lines}) == 5

    async def test_actions_without_effect_are_not_logged(self, store: Store) -> None:
        task_id = await enqueue_one(store)

        await replay(store, task_id)
        await discard(store, task_id)

        assert await all_records(store, Audit) == ()

    async def test_the_audit_log_outlives_the_task(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        await settle_now(store, bury(held))

        await discard(store, held.task.id)

        assert [line.task_id for line in await all_records(store, Audit)] == [held.task.id]
