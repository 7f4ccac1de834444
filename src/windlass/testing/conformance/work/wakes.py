"""Wakes: waiting workers and keepers are notified of new work."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from ...._ids import new_id
from ...._model.queue import QueueSettings
from ...._store.protocol import Store, Wake
from ..steps import ManualWorker, StoreTest, bury, complete, release

DEADLINE_SECONDS = 10.0
NUDGE_SECONDS = 0.2
MANY_QUEUES = tuple(f"customer-{number:06}" for number in range(1_000))


async def wakes_up(
    listening: Store, wake: Wake, cause: Callable[[], Awaitable[object]], queues: Sequence[str] = ("q",)
) -> bool:
    """Whether a listener receives such wakes before the deadline: two, as the first may be that of its start.

    Wakes may be lost while the listener is still connecting, so the cause is repeated.
    """
    listener = asyncio.ensure_future(_receive(listening, wake, queues))
    await asyncio.sleep(0)  # Lets the listener start.
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not listener.done():
                await cause()
                await asyncio.wait([listener], timeout=NUDGE_SECONDS)
            return await listener
    except TimeoutError:
        return False
    finally:
        listener.cancel()
        with suppress(asyncio.CancelledError):
            await listener


async def _receive(store: Store, wanted: Wake, queues: Sequence[str]) -> bool:
    wakes = store.wakes(queues if wanted is Wake.READY else [])
    received = 0
    try:
        async for wake in wakes:
            received += wake is wanted
            if received == 2:
                return True
    finally:
        await wakes.aclose()  # type: ignore[attr-defined]  # a generator in every store we know
    return False


class TestWakes(StoreTest):
    async def test_an_enqueued_task_wakes(self) -> None:
        assert await wakes_up(self.store, Wake.READY, lambda: self.enqueue_one(queue="q"))

    async def test_a_scheduled_task_wakes_the_keeper(self) -> None:
        """Each is due before all others: a keeper that knows of an earlier one need not be woken."""
        delays = (timedelta(milliseconds=n) for n in range(1000, 0, -1))

        assert await wakes_up(
            self.store, Wake.SCHEDULED, lambda: self.enqueue_one(queue="q", delay=next(delays))
        )

    async def test_a_promoted_task_wakes(self) -> None:
        async def promote() -> None:
            await self.enqueue_one(queue="q", delay=timedelta(seconds=1))
            self.clock.advance(1)
            await self.store.promote(limit=10)

        assert await wakes_up(self.store, Wake.READY, promote)

    async def test_a_resumed_queue_wakes(self) -> None:
        await self.store.put(QueueSettings(name="q", paused=True))
        await self.enqueue_one(queue="q")

        assert await wakes_up(self.store, Wake.READY, lambda: self.store.put(QueueSettings(name="q")))

    async def test_removing_a_paused_queues_settings_wakes(self) -> None:
        await self.enqueue_one(queue="q")

        async def resume() -> None:
            await self.store.put(QueueSettings(name="q", paused=True))
            await self.store.remove(QueueSettings, "q")

        assert await wakes_up(self.store, Wake.READY, resume)

    async def test_a_released_task_wakes(self, worker: ManualWorker) -> None:
        await self.enqueue_one(queue="q")

        async def hand_back() -> None:
            await self.settle_now(release(await worker.claim_one("q")))

        assert await wakes_up(self.store, Wake.READY, hand_back)

    async def test_a_task_released_by_a_heartbeat_wakes(self, worker: ManualWorker) -> None:
        await self.enqueue_one(queue="q")

        async def lose_a_reply() -> None:
            await worker.claim_one("q")
            await worker.beat(through=worker.claims)

        assert await wakes_up(self.store, Wake.READY, lose_a_reply)

    async def test_a_replayed_task_wakes(self, worker: ManualWorker) -> None:
        await self.enqueue_one(queue="q")

        async def bring_back() -> None:
            claimed = await worker.claim_one("q")
            await self.settle_now(bury(claimed))
            await self.replay(claimed.task.id)

        assert await wakes_up(self.store, Wake.READY, bring_back)

    async def test_an_unblocked_task_wakes(self, worker: ManualWorker) -> None:
        async def unblock() -> None:
            held = await self.enqueue_and_claim(worker)
            await self.enqueue_one(queue="q", after=(held.task.id,))
            await self.settle_now(complete(held))

        assert await wakes_up(self.store, Wake.READY, unblock)

    async def test_wakes_reach_other_handles(self, other: Store) -> None:
        assert await wakes_up(other, Wake.READY, lambda: self.enqueue_one(queue="q"))

    async def test_a_woken_worker_finds_the_task(self, worker: ManualWorker) -> None:
        queue = new_id()

        assert await wakes_up(self.store, Wake.READY, lambda: self.enqueue_one(queue=queue), [queue])
        assert len(await worker.claim(1, queue)) == 1


async def _listen(store: Store, queues: Sequence[str], woken: asyncio.Event | None = None) -> None:
    """Listen until cancelled."""
    wakes = store.wakes(queues)
    try:
        async for _ in wakes:
            if woken is not None:
                woken.set()
    finally:
        await wakes.aclose()  # type: ignore[attr-defined]  # a generator in every store we know


class TestManyQueues(StoreTest):
    """A thousand queues, one for each customer, are as good as one."""

    async def test_a_listener_is_woken_for_the_last_of_them(self) -> None:
        last = MANY_QUEUES[-1]

        assert await wakes_up(self.store, Wake.READY, lambda: self.enqueue_one(queue=last), MANY_QUEUES)

    async def test_listeners_that_stop_together_all_end(self) -> None:
        woken = asyncio.Event()
        stopping = [
            asyncio.ensure_future(_listen(self.store, MANY_QUEUES, woken)),
            asyncio.ensure_future(_listen(self.store, [])),
        ]
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not woken.is_set():
                await self.enqueue_one(queue=MANY_QUEUES[0])
                await asyncio.wait([asyncio.ensure_future(woken.wait())], timeout=NUDGE_SECONDS)

        for one in stopping:
            one.cancel()
        done, _ = await asyncio.wait(stopping, timeout=DEADLINE_SECONDS)

        assert len(done) == len(stopping)
        assert all(one.cancelled() for one in stopping)

    async def test_a_listener_can_be_stopped_while_it_starts(self) -> None:
        for turns in range(6):
            starting = asyncio.ensure_future(_listen(self.store, MANY_QUEUES))
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            done, _ = await asyncio.wait([starting], timeout=DEADLINE_SECONDS)
            assert done

    async def test_those_who_stay_are_woken_after_others_have_left(self) -> None:
        first, last = MANY_QUEUES[0], MANY_QUEUES[-1]
        leaving = [asyncio.ensure_future(_listen(self.store, MANY_QUEUES)) for _ in range(3)]

        async def leave_and_enqueue() -> None:
            for one in leaving:
                one.cancel()
            await self.enqueue_one(queue=last)

        assert await wakes_up(self.store, Wake.READY, leave_and_enqueue, [first, last])
        await asyncio.wait(leaving, timeout=DEADLINE_SECONDS)
