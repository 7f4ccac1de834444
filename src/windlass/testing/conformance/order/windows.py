"""Windows: outside of the hours of a queue nothing of it is claimed, with or without a keeper."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from ...._model.lease import Claimed
from ...._model.limit import Limit
from ...._model.queue import Fairness, Level, QueueSettings, Window
from ...._model.state import State
from ...._store.protocol import Wake
from ...clock import START
from ..steps import ManualWorker, StoreTest, a_task, complete, release, retry
from ..work.wakes import wakes_up

NINE, FIVE = 9 * 60, 17 * 60
OFFICE = QueueSettings(name="q", windows=(Window(opens=NINE, closes=FIVE),))
NIGHT = QueueSettings(name="q", windows=(Window(opens=FIVE, closes=NINE),))
HOUR = timedelta(hours=1)


class TestWindows(StoreTest):
    """The clock starts at midnight of a Thursday, in UTC."""

    @pytest.fixture(autouse=True)
    async def long_lived(self, worker: ManualWorker) -> None:
        assert (START.weekday(), START.hour) == (3, 0)
        await worker.beat(lease_for=timedelta(days=30))

    async def claims(self, worker: ManualWorker) -> bool:
        """Whether a task of the queue can be claimed now."""
        await self.enqueue_one(queue="q")
        claimed = await worker.claim(1, "q")
        await self.settle_now(*map(complete, claimed))
        return bool(claimed)

    async def open_hours(self, worker: ManualWorker, hours: int) -> list[int]:
        """The hours from now on in which a task can be claimed."""
        found = []
        for hour in range(hours):
            if await self.claims(worker):
                found.append(hour)
            self.clock.advance(HOUR)
        return found

    async def test_tasks_start_only_within_a_window(self, worker: ManualWorker) -> None:
        await self.store.put(OFFICE)

        assert await self.open_hours(worker, 36) == [*range(9, 17), *range(33, 36)]

    async def test_a_window_over_midnight(self, worker: ManualWorker) -> None:
        await self.store.put(NIGHT)

        assert await self.open_hours(worker, 30) == [*range(9), *range(17, 30)]

    async def test_a_window_opens_and_closes_on_time(self, worker: ManualWorker) -> None:
        await self.store.put(OFFICE)
        self.clock.advance(9 * HOUR - timedelta(microseconds=1))
        early = await self.claims(worker)
        self.clock.advance(timedelta(microseconds=1))
        opened = await self.claims(worker)
        self.clock.advance(8 * HOUR - timedelta(microseconds=1))
        late = await self.claims(worker)
        self.clock.advance(timedelta(microseconds=1))

        assert (early, opened, late, await self.claims(worker)) == (False, True, True, False)

    async def test_days_and_several_windows(self, worker: ManualWorker) -> None:
        friday = Window(opens=NINE, closes=FIVE, days=(4,))
        lunch = Window(opens=12 * 60, closes=13 * 60)
        await self.store.put(replace(OFFICE, windows=(friday, lunch)))

        assert await self.open_hours(worker, 48) == [12, *range(33, 41)]

    async def test_hours_are_of_a_time_zone(self, worker: ManualWorker) -> None:
        tokyo = Window(opens=NINE, closes=FIVE, zone="Asia/Tokyo")
        await self.store.put(replace(OFFICE, windows=(tokyo,)))

        assert await self.open_hours(worker, 24) == list(range(8))

    async def test_weeks_without_a_claim_are_made_up_for(self, worker: ManualWorker) -> None:
        await self.store.put(OFFICE)
        self.clock.advance(timedelta(days=20, hours=12))

        assert await self.claims(worker)

    async def test_a_change_applies_at_once(self, worker: ManualWorker) -> None:
        await self.store.put(OFFICE)
        closed = await self.claims(worker)
        await self.store.put(NIGHT)
        opened = await self.claims(worker)
        await self.store.put(OFFICE)
        again = await self.claims(worker)
        await self.store.remove(QueueSettings, "q")

        assert (closed, opened, again, await self.claims(worker)) == (False, True, False, True)

    async def test_other_queues_are_not_affected(self, worker: ManualWorker) -> None:
        await self.store.put(OFFICE)
        await self.store.enqueue([a_task(queue="q"), a_task(queue="other")])

        claimed = await worker.claim(10, "q", "other")

        assert [one.task.queue for one in claimed] == ["other"]

    async def test_a_paused_queue_stays_paused_within_its_windows(self, worker: ManualWorker) -> None:
        await self.store.put(replace(NIGHT, paused=True))

        assert not await self.claims(worker)

    async def test_running_tasks_are_settled_outside_and_claim_nothing(self, worker: ManualWorker) -> None:
        await self.store.put(NIGHT)
        held: list[Claimed] = []
        for _ in range(3):
            await self.enqueue_one(queue="q")
            held += await worker.claim(1, "q")
        self.clock.advance(10 * HOUR)

        settled = await self.store.settle(
            [complete(held[0]), retry(held[1]), release(held[2])], worker.next_claim(10, "q")
        )

        assert settled.claimed == ()
        states = sorted(task.state.value for task in await self.all_tasks())
        assert states == [State.COMPLETED.value, State.READY.value, State.READY.value]

    @pytest.mark.parametrize("fairness", list(Fairness))
    async def test_windows_hold_with_lanes(self, worker: ManualWorker, fairness: Fairness) -> None:
        await self.store.put(replace(OFFICE, fairness=fairness))

        assert await self.open_hours(worker, 10) == [9]

    async def test_windows_hold_with_limits_and_levels(self, worker: ManualWorker) -> None:
        await self.store.put(OFFICE)
        await self.store.put(Limit(name="few", queue="q", running=5))
        await self.enqueue_one(queue="q", priority=10)
        closed = [
            await worker.claim(1, "q"),
            await self.store.claim(replace(worker.next_claim(1, "q"), level=Level.HIGH)),
        ]
        self.clock.advance(9 * HOUR)

        assert [list(claimed) for claimed in closed] == [[], []]
        assert len(await self.store.claim(replace(worker.next_claim(1, "q"), level=Level.HIGH))) == 1

    async def test_workers_are_woken_when_a_window_opens(self, worker: ManualWorker) -> None:
        await self.store.put(OFFICE)
        await self.enqueue_one(queue="q")
        self.clock.advance(9 * HOUR - timedelta(seconds=0.3))

        assert await wakes_up(self.store, Wake.READY, lambda: worker.claim(1, "q"))
