"""Apply: what people do to tasks, and the log of who did it and why."""

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
    SOMEBODY,
    a_task,
    all_records,
    all_tasks,
    applied,
    bury,
    cancel,
    complete,
    discard,
    do,
    dump,
    exists,
    get,
    replay,
    running,
    some_tasks,
    stand,
    state_of,
    stop,
    worker_on,
)


class TestCancel:
    async def test_a_pending_task_is_cancelled_at_once(self, store: Store, clock: ManualClock) -> None:
        held = await running(store, await worker_on(store))
        ids = [
            await stand(store),
            await stand(store, delay=timedelta(seconds=5)),
            await stand(store, after=(held.task.id,)),
        ]
        clock.advance(1)

        done = await cancel(store, *ids)

        assert list(done) == ids
        for task_id in ids:
            task = await get(store, task_id)
            assert (task.state, task.finished_at, task.attempt) == (State.CANCELLED, clock.now(), 0)
            assert task.error is not None

    async def test_a_running_task_is_flagged_and_runs_on(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)

        done = await cancel(store, held.task.id)

        task = await get(store, held.task.id)
        assert list(done) == [held.task.id]
        assert (task.state, task.cancel_requested, task.fence) == (State.RUNNING, True, held.task.fence)
        assert (await worker.beat(held.lease, through=worker.claims)).cancel == (held.task.id,)

    async def test_ended_tasks_are_untouched(self, store: Store) -> None:
        worker = await worker_on(store)
        ids = []
        for ending in (complete, bury, stop):
            claimed = await running(store, worker)
            await applied(store, ending(claimed))
            ids.append(claimed.task.id)
        before = await dump(store)

        assert list(await cancel(store, *ids)) == []
        assert await dump(store) == before

    async def test_a_replayed_task_is_not_flagged_any_more(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        await cancel(store, held.task.id)
        await applied(store, stop(held))
        await replay(store, held.task.id)

        again = await worker.claim_one(held.task.queue)

        assert not again.task.cancel_requested


class TestReplay:
    @pytest.mark.parametrize("ending", [bury, stop])
    async def test_the_dead_and_the_cancelled_come_back_with_all_their_attempts(
        self, store: Store, clock: ManualClock, ending: Callable[[Claimed], Settlement]
    ) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        await applied(store, ending(held))
        clock.advance(1)

        done = await replay(store, held.task.id)

        task = await get(store, held.task.id)
        assert list(done) == [held.task.id]
        assert (task.state, task.attempt, task.run_at) == (State.READY, 0, clock.now())
        assert (task.fence, task.finished_at) == (held.task.fence, None)
        assert task.payload == held.task.payload

    async def test_a_cancelled_scheduled_task_comes_back_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        task_id = await stand(store, delay=timedelta(days=1))
        await cancel(store, task_id)

        await replay(store, task_id)

        assert (await worker.claim_one()).task.run_at == clock.now()

    async def test_with_a_payload_it_comes_back_edited(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await running(store, worker)
        await applied(store, bury(held))

        await replay(store, held.task.id, payload=b'{"to":"eve"}')

        again = await worker.claim_one(held.task.queue)
        (line,) = await all_records(store, Audit)
        assert again.task.payload == b'{"to":"eve"}'
        assert line.detail


class TestDiscard:
    async def test_a_dead_task_is_gone(self, store: Store) -> None:
        held = await running(store, await worker_on(store))
        await applied(store, bury(held))

        done = await discard(store, held.task.id)

        assert list(done) == [held.task.id]
        assert not await exists(store, held.task.id)
        assert list(await store.attempts(held.task.id)) == []

    async def test_only_the_dead_can_be_discarded(self, store: Store) -> None:
        worker = await worker_on(store)
        ids = [await stand(store), (await running(store, worker)).task.id]
        for ending in (complete, stop):
            claimed = await running(store, worker)
            await applied(store, ending(claimed))
            ids.append(claimed.task.id)
        before = await dump(store)

        assert list(await discard(store, *ids)) == []
        assert await dump(store) == before


class TestFilters:
    async def test_only_what_matches_is_touched(self, store: Store) -> None:
        spared = await stand(store, queue="a")
        meant = await stand(store, queue="b")

        done = await store.apply(CancelTasks(by=SOMEBODY), Filter(queues=("b",)), limit=10)

        assert list(done) == [meant]
        assert await state_of(store, spared) is State.READY

    async def test_the_limit_takes_the_oldest(self, store: Store) -> None:
        batch = some_tasks(5)
        await store.enqueue(batch[::-1])
        action = CancelTasks(by=SOMEBODY)

        parts = [await store.apply(action, Filter(), limit=2) for _ in range(4)]

        ids = [new.id for new in batch]
        assert [list(part) for part in parts] == [ids[:2], ids[2:4], ids[4:], []]

    async def test_what_does_not_allow_it_does_not_use_up_the_limit(self, store: Store) -> None:
        worker = await worker_on(store)
        for _ in range(3):
            await applied(store, complete(await running(store, worker)))
        pending = await stand(store)

        done = await store.apply(CancelTasks(by=SOMEBODY), Filter(), limit=1)

        assert list(done) == [pending]

    async def test_a_successor_that_goes_along_is_not_named(self, store: Store) -> None:
        first, second = a_task(queue="q"), a_task(queue="q")
        await store.enqueue([first, second, a_task(queue="q", after=(second.id,))])

        done = await store.apply(CancelTasks(by=SOMEBODY), Filter(queues=("q",)), limit=10)

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
    async def test_the_log_says_who_did_what_to_which_task_and_why(
        self, store: Store, clock: ManualClock, action: Action, word: str
    ) -> None:
        held = await running(store, await worker_on(store))
        if word != "cancel":
            await applied(store, bury(held))
        clock.advance(1)

        await do(store, action, held.task.id)

        (line,) = await all_records(store, Audit)
        assert (line.who, line.why, line.action) == ("ada", "by mistake", word)
        assert (line.task_id, line.at, line.detail) == (held.task.id, clock.now(), "")
        assert line.id

    async def test_one_line_a_task_in_their_order(self, store: Store) -> None:
        ids = [await stand(store) for _ in range(5)]

        await cancel(store, *ids)

        lines = await all_records(store, Audit)
        assert [line.task_id for line in lines] == ids
        assert len({line.id for line in lines}) == 5

    async def test_what_was_not_done_is_not_logged(self, store: Store) -> None:
        task_id = await stand(store)

        await replay(store, task_id)
        await discard(store, task_id)

        assert await all_records(store, Audit) == ()

    async def test_the_log_outlives_the_task(self, store: Store) -> None:
        held = await running(store, await worker_on(store))
        await applied(store, bury(held))

        await discard(store, held.task.id)

        assert [line.task_id for line in await all_records(store, Audit)] == [held.task.id]
