"""Rates and usage of limits, and the wakes of workers that wait for one."""

from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ...._model.limit import Limit, Usage
from ...._store.protocol import Wake
from ..steps import ManualWorker, complete, release, some_tasks
from ..work.wakes import wakes_up
from .limits import ONE, LimitTest, started


def rated(rate: float, burst: int | None = None) -> Limit:
    """Return a limit on the rate of queue q."""
    return Limit(name="r", queue="q", rate=rate, burst=burst)


class TestRates(LimitTest):
    async def test_a_burst_and_then_the_rate(self, worker: ManualWorker) -> None:
        """Never more than burst + rate * t, and exactly that at the end."""
        await self.limit(rated(10, burst=5), tasks=300)
        total, seconds = 0, 0.0
        for _ in range(80):
            claimed = await worker.claim(3, "q") if seconds else await worker.claim(100, "q")
            total += len(claimed)
            assert total <= 5 + 10 * seconds + 1e-6
            if claimed:
                await self.settle_now(*map(complete, claimed))
            self.clock.advance(timedelta(seconds=0.25))
            seconds += 0.25
            await worker.beat()

        assert total >= 0.95 * (5 + 10 * seconds)

    async def test_idle_time_saves_up_no_more_than_the_burst(self, worker: ManualWorker) -> None:
        await self.limit(rated(2, burst=4), tasks=50)
        await started(worker)

        self.clock.advance(timedelta(hours=5))
        await worker.beat(opening=True)

        assert await started(worker) == 4

    async def test_the_default_burst_is_the_rate_of_one_second(self, worker: ManualWorker) -> None:
        await self.limit(rated(2.5), tasks=50)

        assert await started(worker) == 3

    async def test_each_value_has_its_own_rate(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="r", by="tenant", rate=1, burst=2))
        for tenant in ("ada", "bob"):
            await self.store.enqueue(some_tasks(5, queue="q", tenant=tenant))

        assert Counter(one.task.tenant for one in await worker.claim(100, "q")) == {"ada": 2, "bob": 2}

    async def test_a_clock_set_back_adds_no_tokens(self, worker: ManualWorker) -> None:
        await self.limit(rated(1, burst=1), tasks=50)
        numbers = [await started(worker)]

        self.clock.advance(timedelta(seconds=-20))
        await worker.beat()
        numbers.append(await started(worker))
        self.clock.advance(timedelta(seconds=1))

        assert [*numbers, await started(worker)] == [1, 0, 1]

    async def test_a_lowered_rate_applies_at_once(self, worker: ManualWorker) -> None:
        await self.limit(rated(100, burst=100), tasks=500)
        await worker.claim(10, "q")

        await self.store.put(rated(1, burst=2))
        numbers = [await started(worker)]
        self.clock.advance(timedelta(seconds=1))

        assert [*numbers, await started(worker)] == [2, 1]

    @pytest.mark.parametrize(
        "then", [rated(10, burst=20), Limit(name="r", queue="q", running=90)], ids=["raised", "dropped"]
    )
    async def test_time_before_a_change_counts_at_the_old_rate(
        self, worker: ManualWorker, then: Limit
    ) -> None:
        await self.limit(rated(0.5, burst=20), tasks=100)
        numbers = [await started(worker)]

        self.clock.advance(timedelta(seconds=4))
        await self.store.put(then)
        await self.store.put(rated(10, burst=20))
        numbers.append(await started(worker))
        self.clock.advance(timedelta(seconds=1))

        assert [*numbers, await started(worker)] == [20, 2, 10]

    async def test_a_larger_burst_adds_no_tokens_for_the_past(self, worker: ManualWorker) -> None:
        await self.limit(rated(1, burst=2), tasks=100)
        numbers = [await started(worker)]

        self.clock.advance(timedelta(seconds=10))
        await self.store.put(rated(1, burst=50))

        assert [*numbers, await started(worker)] == [2, 2]

    async def test_a_limit_removed_and_put_back_keeps_its_tokens(self, worker: ManualWorker) -> None:
        await self.limit(rated(0.5, burst=20), tasks=100)
        numbers = [await started(worker)]

        self.clock.advance(timedelta(seconds=4))
        await self.store.remove(Limit, "r")
        await self.store.put(rated(10, burst=20))

        assert [*numbers, await started(worker)] == [20, 2]

    async def test_each_value_keeps_its_tokens(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="r", by="tenant", rate=1, burst=9))
        await self.store.put(Limit(name="r2", by="tenant", rate=1, burst=90))
        for tenant in ("ada", "bob"):
            await self.store.enqueue(some_tasks(30, queue=tenant, tenant=tenant))
        await worker.claim(100, "ada")
        self.clock.advance(timedelta(seconds=3))
        await worker.claim(5, "bob")
        self.clock.advance(timedelta(seconds=1))

        await self.store.put(Limit(name="r", by="tenant", rate=5, burst=9))

        numbers = Counter(one.task.tenant for one in await worker.claim(100, "ada", "bob"))
        assert numbers == {"ada": 4, "bob": 5}

    async def test_retries_count_as_starts(self, worker: ManualWorker) -> None:
        await self.limit(rated(1, burst=2), tasks=1)
        for _ in range(2):
            (claimed,) = await worker.claim(1, "q")
            await self.settle_now(release(claimed))

        assert await started(worker) == 0

    async def test_a_cap_and_a_rate_apply_together(self, worker: ManualWorker) -> None:
        await self.limit(Limit(name="both", queue="q", running=2, rate=1, burst=3), tasks=50)
        first = await worker.claim(10, "q")
        await self.settle_now(*map(complete, first))
        then = await worker.claim(10, "q")
        self.clock.advance(timedelta(seconds=9))

        assert [len(first), len(then), await started(worker)] == [2, 1, 1]


class TestUsage(LimitTest):
    async def test_usage_reports_running_tasks_and_tokens(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="each", by="tenant", running=3, rate=2, burst=4))
        await self.store.enqueue(some_tasks(5, queue="q", tenant="ada"))
        claimed = await worker.claim(10, "q")
        await self.settle_now(complete(claimed[0]))
        self.clock.advance(timedelta(seconds=0.5))

        (usage,) = await self.all_records(Usage)

        assert (usage.limit, usage.value, usage.running) == ("each", "ada", 2)
        assert usage.tokens == pytest.approx(2.0)

    async def test_a_cap_alone_has_no_tokens(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=1)
        await worker.claim(1, "q")

        (usage,) = await self.all_records(Usage)

        assert (usage.limit, usage.value, usage.running, usage.tokens) == ("one", "", 1, None)

    async def test_a_removed_limit_has_no_usage(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=1)
        await worker.claim(1, "q")

        await self.store.remove(Limit, "one")

        assert await self.all_records(Usage) == ()


class TestLimitWakes(LimitTest):
    async def test_a_returned_permit_wakes_waiting_workers(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=100)

        async def finish() -> None:
            await self.settle_now(*map(complete, await worker.claim(1, "q")))

        assert await wakes_up(self.store, Wake.READY, finish)

    async def test_the_next_token_wakes_waiting_workers(self, worker: ManualWorker) -> None:
        await self.limit(rated(20, burst=1), tasks=100)

        assert await wakes_up(self.store, Wake.READY, lambda: worker.claim(5, "q"))

    async def test_a_changed_limit_wakes_workers(self) -> None:
        await self.limit(replace(ONE, running=0), tasks=1)

        assert await wakes_up(self.store, Wake.READY, lambda: self.store.put(replace(ONE, running=5)))

    async def test_cancelled_tasks_hold_no_permits(self, worker: ManualWorker) -> None:
        await self.store.put(ONE)
        ids = [await self.enqueue_one(queue="q") for _ in range(3)]

        await self.cancel(ids[0])

        assert await started(worker) == 1
