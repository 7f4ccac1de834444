"""Fairness between tenants, shares of levels, and claims for one level."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ...._model.queue import Fairness, Level, Ordering, QueueSettings
from ...._model.task import NewTask, Task
from ...._store.protocol import Store
from ..steps import ManualWorker, StoreTest, a_task, bury, complete, retry, some_tasks, worker_on

PLAIN = QueueSettings(name="q")
ROUND_ROBIN = replace(PLAIN, fairness=Fairness.ROUND_ROBIN)
RANDOM = replace(PLAIN, fairness=Fairness.RANDOM)
HIGH, LOW = 10, -10


def of_level(priority: int, number: int, tenant: str = "") -> list[NewTask]:
    """Return tasks of a priority, in strict order."""
    return some_tasks(number, queue="q", tenant=tenant, priority=priority)


async def take(worker: ManualWorker, number: int, at_once: int = 10) -> list[Task]:
    """Claim tasks in batches and return them in order."""
    tasks: list[Task] = []
    while len(tasks) < number:
        claimed = await worker.claim(min(at_once, number - len(tasks)), "q")
        assert claimed, f"only {len(tasks)} of {number} tasks were there to claim"
        tasks += [one.task for one in claimed]
    return tasks


async def picks(worker: ManualWorker, number: int, at_once: int = 10) -> Counter[str]:
    """Claim tasks and count their tenants."""
    return Counter(task.tenant for task in await take(worker, number, at_once))


async def levels(worker: ManualWorker, number: int, at_once: int = 10) -> Counter[int]:
    """Claim tasks and count their priorities."""
    return Counter(task.priority for task in await take(worker, number, at_once))


class TestFairness(StoreTest):
    async def fill(self, settings: QueueSettings | None, **numbers: int) -> None:
        """Set up queue q and enqueue tasks for each tenant, one tenant after the other."""
        if settings is not None:
            await self.store.put(settings)
        for tenant, number in numbers.items():
            await self.store.enqueue(some_tasks(number, queue="q", tenant=tenant))

    async def test_without_fairness_the_first_enqueued_is_first(self, worker: ManualWorker) -> None:
        await self.fill(None, ada=5, bob=5)

        assert [task.tenant for task in await take(worker, 10)] == ["ada"] * 5 + ["bob"] * 5

    async def test_a_burst_of_one_tenant_does_not_delay_others(self, worker: ManualWorker) -> None:
        """After a burst of 10,000 tasks, 50 tenants add 10 each, and are done within two fair rounds."""
        await self.fill(ROUND_ROBIN, burst=10_000)
        others = {f"tenant-{number}": 10 for number in range(50)}
        await self.fill(None, **others)

        first = await picks(worker, 2 * 51 * 10, at_once=60)

        assert {tenant: first[tenant] for tenant in others} == others

    @pytest.mark.parametrize("at_once", [1, 3, 50])
    async def test_tenants_get_equal_turns_whatever_the_batch_size(
        self, worker: ManualWorker, at_once: int
    ) -> None:
        await self.fill(ROUND_ROBIN, ada=60, bob=60, eve=60)

        first = await picks(worker, 90, at_once)

        assert max(first.values()) - min(first.values()) <= 1

    async def test_two_workers_are_fair_together(self, worker: ManualWorker, other: Store) -> None:
        await self.fill(ROUND_ROBIN, ada=200, bob=20, eve=20)
        workers = [worker, await worker_on(other)]

        first: Counter[str] = Counter()
        for one in workers * 6:
            first += await picks(one, 5, at_once=1)

        assert first["bob"] >= 16
        assert first["eve"] >= 16

    async def test_weights_set_the_share_of_each_tenant(self, worker: ManualWorker) -> None:
        await self.fill(replace(ROUND_ROBIN, weights={"two": 2, "four": 4}), one=6_000, two=6_000, four=6_000)

        first = await picks(worker, 10_000, at_once=97)

        for tenant, weight in {"one": 1, "two": 2, "four": 4}.items():
            assert first[tenant] == pytest.approx(10_000 * weight / 7, rel=0.05)

    async def test_changed_weights_apply_to_waiting_tasks(self, worker: ManualWorker) -> None:
        await self.fill(ROUND_ROBIN, ada=500, bob=500)
        await picks(worker, 50)

        await self.store.put(replace(ROUND_ROBIN, weights={"bob": 9}))
        then = await picks(worker, 100)

        assert then["bob"] == pytest.approx(90, abs=9)

    async def test_the_share_of_an_idle_tenant_goes_to_the_others(self, worker: ManualWorker) -> None:
        await self.fill(replace(ROUND_ROBIN, weights={"absent": 50}), ada=100, bob=3)

        assert await picks(worker, 80, at_once=80) == {"ada": 77, "bob": 3}

    async def test_fairness_applies_to_tasks_that_are_already_waiting(self, worker: ManualWorker) -> None:
        await self.fill(None, ada=300, bob=20)

        await self.store.put(ROUND_ROBIN)
        first = await picks(worker, 60)

        assert first["bob"] == 20

    @pytest.mark.parametrize("settings", [ROUND_ROBIN, RANDOM], ids=lambda one: one.fairness.value)
    async def test_switching_fairness_loses_no_task(
        self, worker: ManualWorker, settings: QueueSettings
    ) -> None:
        new = [a_task(queue="q", tenant=f"t{number % 7}") for number in range(140)]
        claimed: list[str] = []
        for step, some in enumerate([new[:50], new[50:90], new[90:]]):
            await self.store.put(settings if step % 2 else PLAIN)
            await self.store.enqueue(some)
            claimed += await worker.claim_ids(20, "q")
        await self.store.remove(QueueSettings, "q")

        while more := await worker.claim_ids(50, "q"):
            claimed += more

        assert sorted(claimed) == sorted(task.id for task in new)

    async def test_within_a_tenant_priority_and_age_decide(self, worker: ManualWorker) -> None:
        await self.store.put(ROUND_ROBIN)
        first, second = [await self.enqueue_one(queue="q", tenant="ada") for _ in range(2)]
        urgent = await self.enqueue_one(queue="q", tenant="ada", priority=HIGH)

        assert [(await worker.claim_one("q")).task.id for _ in range(3)] == [urgent, first, second]

    async def test_a_retried_task_takes_turns_again(self, worker: ManualWorker) -> None:
        await self.fill(ROUND_ROBIN, ada=2, bob=1)
        claimed = await worker.claim(3, "q")
        await self.settle_now(*[retry(one, timedelta(seconds=5)) for one in claimed])

        self.clock.advance(timedelta(seconds=5))
        await self.store.promote(10)

        assert await picks(worker, 3) == {"ada": 2, "bob": 1}

    async def test_a_replayed_or_unblocked_task_takes_turns_again(self, worker: ManualWorker) -> None:
        await self.store.put(ROUND_ROBIN)
        first = a_task(queue="q", tenant="ada")
        second = a_task(queue="q", tenant="bob", after=(first.id,))
        await self.store.enqueue([first, second])
        dead = await self.enqueue_one(queue="q", tenant="eve")
        cancelled = await self.enqueue_one(queue="q", tenant="eve")
        await self.cancel(cancelled)
        for one in await worker.claim(5, "q"):
            await self.settle_now(bury(one) if one.task.id == dead else complete(one))
        await self.replay(dead, cancelled)

        claimed = [(await worker.claim_one("q")).task.id for _ in range(3)]

        assert sorted(claimed) == sorted([second.id, dead, cancelled])

    async def test_random_fairness_favours_tenants_with_more_waiting(self, worker: ManualWorker) -> None:
        await self.fill(RANDOM, much=900, little=300)

        first = await picks(worker, 400, at_once=20)

        assert first["much"] > first["little"] > 40  # The expectation is 100, the standard deviation 9.

    async def test_each_of_many_tenants_gets_a_turn(self, worker: ManualWorker) -> None:
        await self.store.put(ROUND_ROBIN)
        tenants = [f"tenant-{number:04}" for number in range(2_000)]
        await self.store.enqueue([a_task(queue="q", tenant=tenant) for tenant in tenants for _ in range(2)])
        await self.fill(None, burst=2_000)

        first = await picks(worker, 2_001, at_once=150)

        assert len(first) == 2_001

    async def test_fair_and_other_queues_take_turns(self, worker: ManualWorker) -> None:
        await self.fill(ROUND_ROBIN, ada=100)
        await self.store.enqueue(some_tasks(100, queue="plain"))

        found: Counter[str] = Counter()
        for _ in range(10):
            found.update(one.task.queue for one in await worker.claim(6, "q", "plain"))

        assert found["q"] == pytest.approx(30, abs=6)
        assert found.total() == 60

    async def test_a_paused_fair_queue_is_not_claimed_from(self, worker: ManualWorker) -> None:
        await self.fill(replace(ROUND_ROBIN, paused=True), ada=3)

        assert not await worker.claim(3, "q")
        await self.store.put(ROUND_ROBIN)
        assert len(await worker.claim(3, "q")) == 3


class TestShares(StoreTest):
    async def test_strict_order_starves_low_priority(self, worker: ManualWorker) -> None:
        """Shows what shares prevent."""
        await self.store.enqueue(of_level(LOW, 50) + of_level(HIGH, 100))

        assert await levels(worker, 100) == {HIGH: 100}

    @pytest.mark.parametrize("at_once", [1, 7, 100])
    async def test_a_level_gets_its_share(self, worker: ManualWorker, at_once: int) -> None:
        await self.store.put(replace(PLAIN, ordering=Ordering(shares={Level.LOW: 20})))
        await self.store.enqueue(of_level(LOW, 200) + of_level(HIGH, 400))

        first = await levels(worker, 200, at_once)

        assert first[LOW] == pytest.approx(40, abs=2)

    async def test_no_level_starves(self, worker: ManualWorker) -> None:
        shares = {Level.HIGH: 80, Level.MEDIUM: 15, Level.LOW: 5}
        await self.store.put(replace(PLAIN, ordering=Ordering(shares=shares)))
        await self.store.enqueue(of_level(LOW, 100) + of_level(0, 100) + of_level(HIGH, 400))

        first = await levels(worker, 300)

        assert first[HIGH] == pytest.approx(240, abs=3)
        assert first[0] == pytest.approx(45, abs=3)
        assert first[LOW] == pytest.approx(15, abs=3)

    async def test_the_share_of_an_empty_level_goes_to_the_others(self, worker: ManualWorker) -> None:
        await self.store.put(replace(PLAIN, ordering=Ordering(shares={Level.HIGH: 80})))
        await self.store.enqueue(of_level(LOW, 10))

        assert len(await worker.claim(10, "q")) == 10

    async def test_an_idle_level_saves_up_no_picks(self, worker: ManualWorker) -> None:
        await self.store.put(replace(PLAIN, ordering=Ordering(shares={Level.LOW: 20})))
        await self.store.enqueue(of_level(HIGH, 500))
        await levels(worker, 300)

        await self.store.enqueue(of_level(LOW, 100))

        assert (await levels(worker, 50))[LOW] == pytest.approx(10, abs=2)

    async def test_shares_apply_to_tasks_that_are_already_waiting(self, worker: ManualWorker) -> None:
        await self.store.enqueue(of_level(LOW, 50) + of_level(HIGH, 200))

        await self.store.put(replace(PLAIN, ordering=Ordering(shares={Level.LOW: 50})))

        assert (await levels(worker, 60))[LOW] == pytest.approx(30, abs=2)

    async def test_none_is_forgotten_when_shares_go_to_another_level(self, worker: ManualWorker) -> None:
        """Tasks of one level leave a place that those of another take."""
        await self.store.put(replace(PLAIN, ordering=Ordering(shares={Level.HIGH: 50})))
        await self.store.enqueue(of_level(LOW, 3) + of_level(HIGH, 3))

        await self.store.put(replace(PLAIN, ordering=Ordering(shares={Level.LOW: 50})))

        assert await levels(worker, 6) == {LOW: 3, HIGH: 3}

    async def test_shares_and_fairness_apply_together(self, worker: ManualWorker) -> None:
        await self.store.put(replace(ROUND_ROBIN, ordering=Ordering(shares={Level.LOW: 25})))
        for priority in (HIGH, LOW):
            for tenant, number in {"ada": 200, "bob": 40}.items():
                await self.store.enqueue(of_level(priority, number, tenant=tenant))

        claimed = await take(worker, 80)

        assert Counter(task.priority for task in claimed)[LOW] == pytest.approx(20, abs=2)
        assert Counter(task.tenant for task in claimed)["bob"] == pytest.approx(40, abs=2)


class TestLevels(StoreTest):
    """Claims for one level, as workers with reserved slots send them."""

    @pytest.mark.parametrize(
        "settings",
        [PLAIN, ROUND_ROBIN, replace(PLAIN, ordering=Ordering(shares={Level.LOW: 5}))],
        ids=["plain", "fair", "shared"],
    )
    async def test_a_claim_for_a_level_gets_its_tasks_in_order(
        self, worker: ManualWorker, settings: QueueSettings
    ) -> None:
        await self.store.put(settings)
        low, high = of_level(LOW, 3), of_level(HIGH, 30)
        await self.store.enqueue([*high, *of_level(0, 30), *low])

        assert await _claim_level(worker, Level.LOW, 2) == [task.id for task in low[:2]]
        assert await _claim_level(worker, Level.LOW, 5) == [low[2].id]
        assert await _claim_level(worker, Level.HIGH, 2) == [task.id for task in high[:2]]

    async def test_other_levels_keep_their_order(self, worker: ManualWorker) -> None:
        new = [*of_level(HIGH, 3), *of_level(0, 3), *of_level(LOW, 3)]
        await self.store.enqueue(new)

        first = await _claim_level(worker, Level.LOW, 1)
        rest = await worker.claim_ids(20, "q")

        assert [*first, *rest] == [new[6].id, *[task.id for task in new if task.id != new[6].id]]

    async def test_medium_is_priority_zero(self, worker: ManualWorker) -> None:
        medium = of_level(0, 2)
        await self.store.enqueue([*of_level(HIGH, 2), *medium, *of_level(LOW, 2)])

        assert await _claim_level(worker, Level.MEDIUM, 5) == [task.id for task in medium]

    async def test_a_paused_queue_is_not_claimed_from(self, worker: ManualWorker) -> None:
        await self.store.put(replace(PLAIN, paused=True))
        await self.store.enqueue(of_level(LOW, 2))

        assert await _claim_level(worker, Level.LOW, 5) == []

    async def test_a_settle_can_claim_for_a_level(self, worker: ManualWorker) -> None:
        low = of_level(LOW, 2)
        await self.store.enqueue(low)
        claimed = await worker.claim_one("q")
        claim = replace(worker.next_claim(5, "q"), level=Level.LOW)

        settled = await self.store.settle([complete(claimed)], claim)

        assert [one.task.id for one in settled.claimed] == [low[1].id]


async def _claim_level(worker: ManualWorker, level: Level, number: int) -> Sequence[str]:
    claimed = await worker.store.claim(replace(worker.next_claim(number, "q"), level=level))
    return [one.task.id for one in claimed]
