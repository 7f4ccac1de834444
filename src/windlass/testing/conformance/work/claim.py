"""Claim: order, due times, pauses; no task is claimed twice."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from ...._model.lease import Claimed
from ...._model.queue import QueueSettings
from ...._model.state import State
from ...._model.verdict import Settlement
from ...._store.protocol import Store
from ....errors import SessionLost
from ...clock import ManualClock
from ..steps import (
    LEASE,
    ManualWorker,
    a_task,
    all_tasks,
    bury,
    cancel,
    dump,
    enqueue_and_claim,
    enqueue_one,
    load,
    release,
    replay,
    retry,
    settle_now,
    some_tasks,
    worker_on,
)


class TestClaim:
    async def test_a_claim_counts_the_attempt_and_raises_the_fence(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store, "w7")
        task_id = await enqueue_one(store)
        clock.advance(2)

        claimed = await worker.claim_one()

        task = claimed.task
        assert (task.id, task.state, task.attempt, task.fence) == (task_id, State.RUNNING, 1, 1)
        assert (task.session, task.worker, task.claimed_at) == (worker.session, "w7", clock.now())
        assert (claimed.lease.task_id, claimed.lease.fence) == (task_id, 1)
        assert await load(store, task_id) == task

    async def test_a_claimed_task_is_not_claimed_again(self, store: Store) -> None:
        first, second = await worker_on(store), await worker_on(store)
        await enqueue_one(store)

        assert len(await first.claim()) == 1
        assert len(await second.claim()) == 0

    async def test_no_more_than_the_limit(self, store: Store) -> None:
        worker = await worker_on(store)
        await store.enqueue(some_tasks(5))

        assert [len(await worker.claim(limit)) for limit in (2, 0, 10, 10)] == [2, 0, 3, 0]

    async def test_only_the_requested_queues_are_claimed_from(self, store: Store) -> None:
        worker = await worker_on(store)
        batch = [a_task(queue=queue) for queue in ("a", "b", "c", "a")]
        await store.enqueue(batch)

        claimed = await worker.claim(10, "a", "c", "nowhere", "a")

        assert [one.task.id for one in claimed] == [batch[0].id, batch[2].id, batch[3].id]

    @pytest.mark.parametrize("end", [release, retry, bury])
    async def test_every_claim_counts_and_fences_only_rise(
        self, store: Store, end: Callable[[Claimed], Settlement]
    ) -> None:
        worker = await worker_on(store)
        first = await enqueue_and_claim(store, worker)
        await settle_now(store, end(first))
        await replay(store, first.task.id)

        second = await worker.claim_one(first.task.queue)

        assert second.task.fence > first.task.fence
        assert second.task.attempt == (2 if end is retry else 1)

    async def test_a_crash_counts_because_the_claim_did(self, store: Store, clock: ManualClock) -> None:
        doomed = await worker_on(store)
        await enqueue_and_claim(store, doomed)
        clock.advance(LEASE)
        rescuer = await worker_on(store)

        (rescued,) = await store.rescue(rescuer.session, limit=10)

        assert rescued.task.attempt == 1

    async def test_an_unknown_session_claims_nothing(self, store: Store) -> None:
        await enqueue_one(store)
        before = await dump(store)
        unknown = ManualWorker(store)

        with pytest.raises(SessionLost):
            await unknown.claim()

        assert await dump(store) == before

    async def test_an_expired_session_claims_nothing(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        await enqueue_one(store)
        clock.advance(LEASE)
        before = await dump(store)

        with pytest.raises(SessionLost):
            await worker.claim()

        assert await dump(store) == before

    async def test_a_session_claims_until_the_very_end_of_its_lease(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        await enqueue_one(store)
        clock.advance(LEASE - timedelta(microseconds=1))

        assert len(await worker.claim()) == 1

    async def test_many_claimers_never_get_the_same_task(self, store: Store) -> None:
        await store.enqueue(some_tasks(300))
        handles = [store.another() for _ in range(6)]
        for handle in handles:
            await handle.open()
        workers = [await worker_on(handle) for handle in handles for _ in range(2)]

        async def drain(worker: ManualWorker) -> list[str]:
            got: list[str] = []
            while claimed := await worker.claim(7):
                assert {one.task.session for one in claimed} == {worker.session}
                got += [one.task.id for one in claimed]
                await asyncio.sleep(0)
            return got

        shares = await asyncio.gather(*(drain(worker) for worker in workers))
        for handle in handles:
            await handle.close()

        got = [task_id for share in shares for task_id in share]
        assert len(got) == len(set(got)) == 300
        assert {(task.attempt, task.fence) for task in await all_tasks(store)} == {(1, 1)}


class TestOrder:
    async def test_first_in_is_first_out_among_equals(self, store: Store) -> None:
        worker = await worker_on(store)
        batch = some_tasks(20)
        await store.enqueue(batch[10:])
        await store.enqueue(batch[:10])

        claimed = [*await worker.claim(7), *await worker.claim(20)]

        assert [one.task.id for one in claimed] == [new.id for new in batch]

    async def test_the_earlier_due_goes_first_whatever_its_id(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        late, early = some_tasks(2)
        await store.enqueue([a_task(id=early.id, run_at=clock.now() - timedelta(seconds=1)), late])

        claimed = await worker.claim(2)

        assert [one.task.id for one in claimed] == [early.id, late.id]

    async def test_within_a_millisecond_the_id_decides(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        older, newer = some_tasks(2)
        early = clock.now() - timedelta(seconds=1)
        await store.enqueue(
            [
                a_task(id=older.id, run_at=early + timedelta(microseconds=900)),
                a_task(id=newer.id, run_at=early + timedelta(microseconds=100)),
            ]
        )

        claimed = await worker.claim(2)

        assert [one.task.id for one in claimed] == [older.id, newer.id]

    async def test_a_higher_boost_goes_first(self, store: Store) -> None:
        worker = await worker_on(store)
        low, plain, high = (a_task(priority=p, boost=p * (1 << 44)) for p in (-100, 0, 100))
        await store.enqueue([low, plain, high])

        claimed = [await worker.claim_one() for _ in range(3)]

        assert [one.task.id for one in claimed] == [high.id, plain.id, low.id]

    async def test_timers_makes_up_for_priority_when_a_queue_ages(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = await worker_on(store)
        await worker.beat(lease_for=timedelta(hours=1))
        old = await enqueue_one(store)
        clock.advance(59)
        overtaking = await enqueue_one(store, priority=1, boost=60_000)
        clock.advance(2)
        too_late = await enqueue_one(store, priority=1, boost=60_000)

        claimed = await worker.claim(3)

        assert [one.task.id for one in claimed] == [overtaking, old, too_late]

    async def test_several_queues_are_claimed_in_one_order(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        expected = []
        for step in range(6):
            expected.append(await enqueue_one(store, queue="ab"[step % 2], boost=-1000 * (step // 4)))
            clock.advance(1)
        first = await enqueue_one(store, queue="b", boost=60_000)

        claimed = [*await worker.claim(4, "a", "b"), *await worker.claim(9, "b", "a")]

        assert [one.task.id for one in claimed] == [first, *expected]

    async def test_a_released_task_keeps_its_rank(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        first = await enqueue_one(store)
        clock.advance(1)
        await enqueue_one(store)
        claimed = await worker.claim_one()
        clock.advance(1)

        await settle_now(store, release(claimed))

        assert (await worker.claim_one()).task.id == first

    async def test_a_retried_task_goes_to_the_end(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store)
        first, second = await enqueue_one(store), await enqueue_one(store)
        claimed = await worker.claim_one()
        assert claimed.task.id == first
        clock.advance(1)

        await settle_now(store, retry(claimed))

        assert [one.task.id for one in await worker.claim(2)] == [second, first]


class TestDue:
    async def test_a_cancelled_task_never_starts(self, store: Store) -> None:
        worker = await worker_on(store)
        await cancel(store, await enqueue_one(store))

        assert len(await worker.claim(10)) == 0

    async def test_nothing_starts_early(self, store: Store, clock: ManualClock) -> None:
        worker = await worker_on(store, lease_for=timedelta(days=1))
        await enqueue_one(store, delay=timedelta(seconds=10))
        clock.advance(timedelta(seconds=10) - timedelta(microseconds=1))
        await store.promote(limit=10)
        assert len(await worker.claim()) == 0
        clock.advance(timedelta(microseconds=1))
        await store.promote(limit=10)

        assert len(await worker.claim()) == 1


class TestPause:
    async def test_a_paused_queue_is_not_claimed_from(self, store: Store) -> None:
        worker = await worker_on(store)
        await store.enqueue([a_task(queue="paused"), a_task(queue="open")])
        await store.put(QueueSettings(name="paused", paused=True))

        claimed = await worker.claim(10, "paused", "open")

        assert [one.task.queue for one in claimed] == ["open"]

    async def test_a_settle_does_not_claim_from_a_paused_queue(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker)
        await enqueue_one(store, queue="paused")
        await store.put(QueueSettings(name="paused", paused=True))

        settled = await store.settle([release(held)], worker.next_claim(10, "paused"))

        assert settled.claimed == ()

    @pytest.mark.parametrize("how", ["put", "remove"])
    async def test_a_resumed_queue_is_claimed_from(self, store: Store, how: str) -> None:
        worker = await worker_on(store)
        await enqueue_one(store, queue="q")
        await store.put(QueueSettings(name="q", paused=True))
        if how == "put":
            await store.put(QueueSettings(name="q"))
        else:
            assert await store.remove(QueueSettings, "q")

        assert len(await worker.claim(1, "q")) == 1

    async def test_a_paused_queue_still_takes_tasks_and_settlements(self, store: Store) -> None:
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker, queue="q")
        await store.put(QueueSettings(name="q", paused=True))

        await enqueue_one(store, queue="q")
        await settle_now(store, release(held))

        assert {task.state for task in await all_tasks(store)} == {State.READY}
