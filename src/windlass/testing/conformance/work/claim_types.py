"""Claims of some types only: tasks of other types are passed over and stay as they are, for other workers."""

from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ...._model.limit import Limit
from ...._model.queue import Fairness, Level, QueueSettings
from ...._model.state import State
from ...._model.task import TaskId
from ...._model.verdict import Postpone, Reason
from ...._stores.rules.claim_planner import KEYS_AT_ONCE
from ..steps import ManualWorker, StoreTest, a_task, complete, settlement, some_tasks

MINE, OTHERS = ("mine", "mine.too"), "other"
MANY = 1_200  # more than any store looks at in one step


class TestClaimByType(StoreTest):
    async def fill(self, others: int, mine: int = 1, **fields: object) -> list[TaskId]:
        """Enqueue tasks of other types, then some of ours; return the ids of these."""
        await self.store.enqueue(some_tasks(others, type=OTHERS, **fields))
        batch = some_tasks(mine, type=MINE[0], **fields)
        await self.store.enqueue(batch)
        return [new.id for new in batch]

    async def test_only_these_types_are_claimed(self, worker: ManualWorker) -> None:
        batch = [a_task(type=name) for name in (OTHERS, MINE[1], OTHERS, MINE[0], "mine.not", MINE[1])]
        await self.store.enqueue(batch)

        assert await worker.claim_ids(2, types=MINE) == [batch[1].id, batch[3].id]
        assert await worker.claim_ids(10, types=MINE) == [batch[5].id]
        assert await worker.claim_ids(10, types=MINE) == []

    async def test_tasks_of_other_types_stay_as_they_are(self, worker: ManualWorker) -> None:
        await self.fill(3, mine=0)

        async with self.unchanged():
            assert list(await worker.claim(10, types=MINE)) == []

    async def test_without_types_nothing_is_claimed(self, worker: ManualWorker) -> None:
        await self.enqueue_one()

        assert list(await worker.claim(10, types=())) == []

    async def test_another_worker_gets_the_others_in_their_order(self, worker: ManualWorker) -> None:
        batch = [a_task(type=(OTHERS, MINE[0])[number % 2]) for number in range(10)]
        await self.store.enqueue(batch)
        second = await self.new_worker()

        ours = await worker.claim_ids(10, types=MINE)
        theirs = await second.claim_ids(10)

        assert [ours, theirs] == [[new.id for new in batch[1::2]], [new.id for new in batch[::2]]]

    async def test_the_first_over_all_queues_is_first(self, worker: ManualWorker) -> None:
        batch = [
            a_task(queue=queue, type=name, priority=priority)
            for queue in ("a", "b", "c")
            for name in (OTHERS, MINE[0])
            for priority in (0, 5)
        ]
        await self.store.enqueue(batch)
        ours = [new for new in batch if new.type != OTHERS]

        got = await worker.claim_ids(4, "a", "b", "c", types=MINE)

        assert got == [new.id for new in sorted(ours, key=lambda new: -new.priority)[:4]]

    async def test_from_very_many_queues(self, worker: ManualWorker) -> None:
        queues = [f"q{number}" for number in range(40)]
        batch = [a_task(queue=queue, type=name) for queue in queues for name in (OTHERS, MINE[0])]
        await self.store.enqueue(batch)

        assert await worker.claim_ids(100, *queues, types=MINE) == [new.id for new in batch[1::2]]

    async def test_thousands_of_other_tasks_before_it_do_not_hide_a_task(self, worker: ManualWorker) -> None:
        ours = await self.fill(MANY, mine=2)

        assert await worker.claim_ids(5, types=MINE) == ours

    async def test_a_settlement_claims_by_type_as_well(self, worker: ManualWorker) -> None:
        first, second = await self.fill(3, mine=2)
        (held,) = await worker.claim(1, types=MINE)
        assert held.task.id == first

        settled = await self.store.settle([complete(held)], worker.next_claim(5, types=MINE))

        assert [one.task.id for one in settled.claimed] == [second]
        assert await self.state_of(first) is State.COMPLETED

    async def test_a_settlement_of_any_kind_claims_by_type_as_well(self, worker: ManualWorker) -> None:
        first, second = await self.fill(3, mine=2)
        (held,) = await worker.claim(1, types=MINE)
        back = settlement(held, Postpone(delay=timedelta(0), reason=Reason.RELEASE))

        settled = await self.store.settle([back], worker.next_claim(5, types=MINE))

        assert [one.task.id for one in settled.claimed] == [first, second]

    async def test_a_task_that_is_handed_back_keeps_its_place(self, worker: ManualWorker) -> None:
        await self.fill(2)
        since = self.clock.now() - timedelta(hours=1)
        (held,) = await worker.claim(1)
        self.clock.advance(1)
        back = Postpone(delay=timedelta(0), reason=Reason.RELEASE, unhandled_since=since)

        task = await self.settled(settlement(held, back, "unhandled"))

        assert (task.state, task.attempt, task.run_at) == (State.READY, 0, held.task.run_at)
        assert (task.unhandled_since, task.error) == (since, None)
        assert list(await self.store.attempts(task.id)) == []
        assert await worker.claim_ids(1) == [task.id]

    async def test_a_paused_queue_gives_nothing(self, worker: ManualWorker) -> None:
        await self.fill(1)
        await self.store.put(QueueSettings(name="default", paused=True))

        assert list(await worker.claim(5, types=MINE)) == []

    async def test_one_level_of_some_types(self, worker: ManualWorker) -> None:
        batch = [a_task(type=name, priority=p) for p in (5, 0, -5) for name in (OTHERS, MINE[0])]
        await self.store.enqueue(batch)

        got = {}
        for level in Level:
            claim = replace(worker.next_claim(5, types=MINE), level=level)
            got[level] = [one.task.id for one in await self.store.claim(claim)]

        assert got == {Level.HIGH: [batch[1].id], Level.MEDIUM: [batch[3].id], Level.LOW: [batch[5].id]}

    # -- lanes and limits ----------------------------------------------------------------------------

    @pytest.mark.parametrize("fairness", [Fairness.ROUND_ROBIN, Fairness.RANDOM], ids=lambda one: one.value)
    async def test_tenants_are_served_in_turn(self, worker: ManualWorker, fairness: Fairness) -> None:
        await self.store.put(QueueSettings(name="default", fairness=fairness))
        for tenant in ("ada", "bob", "eve"):
            await self.fill(5, mine=4, tenant=tenant)
        await self.store.enqueue(some_tasks(5, type=OTHERS, tenant="others"))

        claimed = [one for _ in range(8) for one in await worker.claim(3, types=MINE)]

        assert Counter(one.task.tenant for one in claimed) == {"ada": 4, "bob": 4, "eve": 4}
        if fairness is Fairness.ROUND_ROBIN:
            assert Counter(one.task.tenant for one in claimed[:6]) == {"ada": 2, "bob": 2, "eve": 2}
        assert {one.task.type for one in claimed} == {MINE[0]}

    async def test_thousands_of_other_tasks_in_a_lane_do_not_hide_a_task(self, worker: ManualWorker) -> None:
        await self.store.put(QueueSettings(name="default", fairness=Fairness.ROUND_ROBIN))
        ours = await self.fill(MANY, tenant="ada")

        assert await worker.claim_ids(5, types=MINE) == ours

    async def test_limits_hold(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="each", by="tenant", running=2))
        for tenant in ("ada", "bob"):
            await self.fill(3, mine=3, tenant=tenant)

        claimed = [*await worker.claim(10, types=MINE), *await worker.claim(10, types=MINE)]

        assert Counter(one.task.tenant for one in claimed) == {"ada": 2, "bob": 2}
        assert {one.task.type for one in claimed} == {MINE[0]}

    async def test_permits_are_not_taken_by_tasks_of_other_types(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="one", queue="default", running=1))
        ours = await self.fill(5)

        assert await worker.claim_ids(10, types=MINE) == ours

    async def test_many_keys_of_other_tasks_do_not_hide_a_task(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="each", by="tenant", running=1))
        others = [a_task(type=OTHERS, tenant=f"t{number}") for number in range(2 * KEYS_AT_ONCE)]
        ours = some_tasks(3, type=MINE[0], tenant="z")
        await self.store.enqueue([*others, *ours])

        assert await worker.claim_ids(10, types=MINE) == [ours[0].id]
