"""Prune: retention deletes what it covers, and nothing else."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from ...._model.queue import QueueSettings, Retention
from ...._model.state import ENDED, State
from ...._store.protocol import Store
from ...clock import ManualClock
from ..steps import (
    ManualWorker,
    a_task,
    all_tasks,
    bury,
    complete,
    dump,
    enqueue_and_claim,
    enqueue_one,
    exists,
    load,
    settle_now,
    stop,
    worker_on,
)

HOUR = timedelta(hours=1)
FOR_EVER = Retention(completed=None, cancelled=None, dead=None)
ENDS = {State.COMPLETED: complete, State.CANCELLED: stop, State.DEAD: bury}
every_end = pytest.mark.parametrize("state", sorted(ENDED))


async def ended(store: Store, worker: ManualWorker, state: State, queue: str = "q") -> str:
    """Return a task that has ended in this state."""
    claimed = await enqueue_and_claim(store, worker, queue=queue)
    await settle_now(store, ENDS[state](claimed))
    return claimed.task.id


class TestPrune:
    @every_end
    async def test_each_state_has_its_own_retention(
        self, store: Store, clock: ManualClock, state: State
    ) -> None:
        worker = await worker_on(store)
        ids = {end: await ended(store, worker, end) for end in ENDS}
        clock.advance(HOUR + timedelta(microseconds=1))

        pruned = await store.prune(replace(FOR_EVER, **{state.value: HOUR}), limit=10)

        assert pruned == 1
        assert {end for end, task_id in ids.items() if not await exists(store, task_id)} == {state}
        assert list(await store.attempts(ids[state])) == []

    @every_end
    async def test_nothing_is_pruned_before_its_retention_ends(
        self, store: Store, clock: ManualClock, state: State
    ) -> None:
        await ended(store, await worker_on(store), state)
        clock.advance(HOUR - timedelta(microseconds=1))
        before = await dump(store)

        assert await store.prune(Retention(completed=HOUR, cancelled=HOUR, dead=HOUR), limit=10) == 0
        assert await dump(store) == before

    async def test_without_retention_tasks_are_kept_for_ever(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        for state in ENDS:
            await ended(store, worker, state)
        clock.advance(timedelta(days=36500))
        before = await dump(store)

        assert await store.prune(FOR_EVER, limit=10) == 0
        assert await dump(store) == before

    @every_end
    async def test_retention_beyond_the_calendar_keeps_for_ever(self, store: Store, state: State) -> None:
        task_id = await ended(store, await worker_on(store), state)

        assert await store.prune(replace(FOR_EVER, **{state.value: timedelta.max}), limit=10) == 0
        assert await exists(store, task_id)

    async def test_expired_keys_are_pruned_whatever_the_limit_on_tasks(
        self, store: Store, clock: ManualClock
    ) -> None:
        keys = [f"k{n}" for n in range(7)]
        for key in keys:
            await enqueue_one(store, idempotency_key=key, idempotency_for=HOUR)
        lasting = await enqueue_one(store, idempotency_key="lasting", idempotency_for=HOUR * 9)
        clock.advance(HOUR * 2)

        assert await store.prune(FOR_EVER, limit=2) == 0

        clock.advance(-HOUR * 2)  # A key that was not deleted would be valid again.
        answers = await store.enqueue([a_task(idempotency_key=key) for key in keys])
        assert [answer.created for answer in answers] == [True] * len(keys)
        (answer,) = await store.enqueue([a_task(idempotency_key="lasting")])
        assert (answer.id, answer.created) == (lasting, False)

    async def test_unfinished_tasks_are_never_pruned(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await enqueue_one(store)
        await enqueue_one(store, delay=timedelta(days=1))
        await enqueue_one(store, after=(held.task.id,))
        clock.advance(timedelta(days=365))
        before = await dump(store)

        zero = timedelta(0)
        assert await store.prune(Retention(completed=zero, cancelled=zero, dead=zero), limit=10) == 0
        assert await dump(store) == before

    async def test_a_queues_retention_overrides_the_keepers(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        await store.put(QueueSettings(name="long", retention=FOR_EVER))
        await store.put(QueueSettings(name="short", retention=replace(FOR_EVER, completed=HOUR)))
        await store.put(QueueSettings(name="plain", paused=False))
        kept = [
            await ended(store, worker, State.COMPLETED, "long"),
            await ended(store, worker, State.DEAD, "short"),
        ]
        gone = [
            await ended(store, worker, State.COMPLETED, "short"),
            await ended(store, worker, State.COMPLETED, "plain"),
            await ended(store, worker, State.COMPLETED, "unknown"),
        ]
        clock.advance(HOUR * 2)

        assert await store.prune(Retention(completed=HOUR, cancelled=HOUR, dead=HOUR), limit=10) == len(gone)
        assert [task.id for task in await all_tasks(store)] == kept

    async def test_no_more_than_the_limit(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        for _ in range(5):
            await ended(store, worker, State.COMPLETED)
        clock.advance(HOUR * 2)
        retention = replace(FOR_EVER, completed=HOUR)

        assert [await store.prune(retention, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_a_completed_predecessor_is_kept_while_its_successor_waits(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store, lease_for=timedelta(days=1))
        done, slow = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)
        last = await enqueue_one(
            store, queue="last", after=(done.task.id, slow.task.id), result_into="results"
        )
        await settle_now(store, complete(done, b"1"))
        clock.advance(HOUR * 2)
        retention = replace(FOR_EVER, completed=HOUR)
        assert await store.prune(retention, limit=10) == 0
        await settle_now(store, complete(slow, b"2"))
        await settle_now(store, complete(await worker.claim_one("last")))
        assert (await load(store, last)).state is State.COMPLETED
        clock.advance(HOUR * 2)

        assert await store.prune(retention, limit=10) == 3
