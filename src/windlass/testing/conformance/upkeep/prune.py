"""Prune: retention deletes what it covers, and nothing else."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ...._model.lease import Claimed
from ...._model.options import DeclaredType
from ...._model.queue import QueueSettings, Retention
from ...._model.record import ARCHIVE_NAME, Archive
from ...._model.state import ENDED, State
from ...._model.task import Enqueued, TaskId
from ...._model.transition import PrunedCount
from ..steps import ManualWorker, StoreTest, a_task, bury, complete, stop

HOUR = timedelta(hours=1)
AN_HOUR = Retention(completed=HOUR, cancelled=HOUR, dead=HOUR)
FOR_EVER = Retention(completed=None, cancelled=None, dead=None)
ENDS = {State.COMPLETED: complete, State.CANCELLED: stop, State.DEAD: bury}
every_end = pytest.mark.parametrize("state", sorted(ENDED))


class TestPrune(StoreTest):
    async def ended(self, worker: ManualWorker, state: State, queue: str = "q", **fields: Any) -> TaskId:
        """Return a task that has ended in this state."""
        return (await self.enqueue_and_settle(worker, ENDS[state], queue=queue, **fields)).task.id

    @every_end
    async def test_each_state_has_its_own_retention(self, worker: ManualWorker, state: State) -> None:
        ids = {end: await self.ended(worker, end) for end in ENDS}
        self.clock.advance(HOUR + timedelta(microseconds=1))

        assert (await self.store.prune(replace(FOR_EVER, **{state.value: HOUR}), limit=10)).number == 1
        assert {end for end, task_id in ids.items() if not await self.exists(task_id)} == {state}
        assert list(await self.store.attempts(ids[state])) == []

    @every_end
    async def test_nothing_is_pruned_before_its_retention_ends(self, held: Claimed, state: State) -> None:
        await self.settle_now(ENDS[state](held))
        self.clock.advance(HOUR - timedelta(microseconds=1))

        async with self.unchanged():
            assert (await self.store.prune(AN_HOUR, limit=10)).number == 0

    async def test_without_retention_tasks_are_kept_for_ever(self, worker: ManualWorker) -> None:
        for state in ENDS:
            await self.ended(worker, state)
        self.clock.advance(timedelta(days=36500))

        async with self.unchanged():
            assert (await self.store.prune(FOR_EVER, limit=10)).number == 0

    @every_end
    async def test_retention_beyond_the_calendar_keeps_for_ever(self, held: Claimed, state: State) -> None:
        await self.settle_now(ENDS[state](held))

        assert (
            await self.store.prune(replace(FOR_EVER, **{state.value: timedelta.max}), limit=10)
        ).number == 0
        assert await self.exists(held.task.id)

    async def test_expired_keys_are_pruned_whatever_the_limit_on_tasks(self) -> None:
        keys = [f"k{n}" for n in range(7)]
        for key in keys:
            await self.enqueue_one(idempotency_key=key, idempotency_for=HOUR)
        lasting = await self.enqueue_one(idempotency_key="lasting", idempotency_for=HOUR * 9)
        self.clock.advance(HOUR * 2)

        assert (await self.store.prune(FOR_EVER, limit=2)).number == 0

        self.clock.advance(-HOUR * 2)  # A key that was not deleted would be valid again.
        answers = await self.store.enqueue([a_task(idempotency_key=key) for key in keys])
        assert [answer.created for answer in answers] == [True] * len(keys)
        again = await self.store.enqueue([a_task(idempotency_key="lasting")])
        assert list(again) == [Enqueued(id=lasting, created=False)]

    async def test_unfinished_tasks_are_never_pruned(self, held: Claimed) -> None:
        await self.enqueue_one()
        await self.enqueue_one(delay=timedelta(days=1))
        await self.enqueue_one(after=(held.task.id,))
        self.clock.advance(timedelta(days=365))

        zero = timedelta(0)

        async with self.unchanged():
            assert (
                await self.store.prune(Retention(completed=zero, cancelled=zero, dead=zero), limit=10)
            ).number == 0

    async def test_a_queues_retention_overrides_the_keepers(self, worker: ManualWorker) -> None:
        await self.store.put(QueueSettings(name="long", retention=FOR_EVER))
        await self.store.put(QueueSettings(name="short", retention=replace(FOR_EVER, completed=HOUR)))
        await self.store.put(QueueSettings(name="plain", paused=False))
        kept = [
            await self.ended(worker, State.COMPLETED, "long"),
            await self.ended(worker, State.DEAD, "short"),
        ]
        for queue in ("short", "plain", "unknown"):
            await self.ended(worker, State.COMPLETED, queue)
        self.clock.advance(HOUR * 2)

        assert (await self.store.prune(AN_HOUR, limit=10)).number == 3
        assert [task.id for task in await self.all_tasks()] == kept

    @every_end
    async def test_the_retention_of_a_type_overrides_the_keepers(
        self, worker: ManualWorker, state: State
    ) -> None:
        await self.store.put(DeclaredType(name="kept", retention=FOR_EVER, aliases=("formerly",)))
        await self.store.put(DeclaredType(name="day", retention=replace(AN_HOUR, **{state.value: HOUR * 24})))
        await self.store.put(DeclaredType(name="plain"))
        types = ("kept", "formerly", "day", "plain", "unknown")
        ids = {name: await self.ended(worker, state, type=name) for name in types}
        self.clock.advance(HOUR * 2)
        pruned = [await self.store.prune(AN_HOUR, limit=10)]
        self.clock.advance(HOUR * 24)
        await worker.beat(opening=True)
        pruned.append(await self.store.prune(AN_HOUR, limit=10))

        expected = [PrunedCount(queue="q", state=state, number=number) for number in (2, 1)]
        assert [one.counts for one in pruned] == [(count,) for count in expected]
        assert [task.id for task in await self.all_tasks()] == [ids["kept"], ids["formerly"]]

    async def test_the_retention_of_a_queue_overrides_that_of_a_type(self, worker: ManualWorker) -> None:
        await self.store.put(QueueSettings(name="short", retention=AN_HOUR))
        await self.store.put(QueueSettings(name="long", retention=FOR_EVER))
        await self.store.put(DeclaredType(name="kept", retention=FOR_EVER))
        await self.store.put(DeclaredType(name="brief", retention=AN_HOUR))
        await self.ended(worker, State.DEAD, "short", type="kept")
        kept = await self.ended(worker, State.DEAD, "long", type="brief")
        self.clock.advance(HOUR * 2)

        assert (await self.store.prune(FOR_EVER, limit=10)).number == 1
        assert [task.id for task in await self.all_tasks()] == [kept]

    async def test_a_new_name_takes_precedence_over_an_alias(self, worker: ManualWorker) -> None:
        await self.store.put(DeclaredType(name="a", retention=FOR_EVER, aliases=("b",)))
        await self.store.put(DeclaredType(name="b", retention=AN_HOUR))
        await self.ended(worker, State.COMPLETED, type="b")
        self.clock.advance(HOUR * 2)

        assert (await self.store.prune(FOR_EVER, limit=10)).number == 1

    async def test_a_type_kept_for_ever_does_not_keep_the_days_of_others(self, worker: ManualWorker) -> None:
        await self.store.put(DeclaredType(name="kept", retention=FOR_EVER))
        kept = await self.ended(worker, State.COMPLETED, type="kept")
        for _ in range(2):
            await self.ended(worker, State.COMPLETED, type="other")
        self.clock.advance(timedelta(days=400))

        assert (await self.store.prune(Retention(), limit=10)).number == 2
        assert [task.id for task in await self.all_tasks()] == [kept]

    async def test_no_more_than_the_limit(self, worker: ManualWorker) -> None:
        for _ in range(5):
            await self.ended(worker, State.COMPLETED)
        self.clock.advance(HOUR * 2)
        retention = replace(FOR_EVER, completed=HOUR)

        assert [(await self.store.prune(retention, limit=2)).number for _ in range(4)] == [2, 2, 1, 0]

    async def test_a_completed_predecessor_is_kept_while_its_successor_waits(self) -> None:
        worker = await self.new_worker(lease_for=timedelta(days=1))
        done, slow = await self.enqueue_and_claim(worker), await self.enqueue_and_claim(worker)
        last = await self.enqueue_one(queue="last", after=(done.task.id, slow.task.id), result_into="results")
        await self.settle_now(complete(done, b"1"))
        self.clock.advance(HOUR * 2)
        retention = replace(FOR_EVER, completed=HOUR)
        assert (await self.store.prune(retention, limit=10)).number == 0
        await self.settle_now(complete(slow, b"2"))
        await self.settle_now(complete(await worker.claim_one("last")))
        assert (await self.load(last)).state is State.COMPLETED
        self.clock.advance(HOUR * 2)

        assert (await self.store.prune(retention, limit=10)).number == 3

    async def test_while_archiving_is_on_only_what_was_archived_is_pruned(self, worker: ManualWorker) -> None:
        await self.store.put(Archive())
        await worker.beat(lease_for=timedelta(days=1))
        ended = []
        for ending in (complete, stop, bury) * 2:
            ended.append((await self.enqueue_and_settle(worker, ending)).task.id)
            self.clock.advance(HOUR)
        begun = (await self.load(ended[0])).finished_at
        assert begun is not None

        numbers = [(await self.store.prune(AN_HOUR, limit=10)).number]
        for until in (begun, begun + HOUR, begun + 3 * HOUR):
            await self.store.put(Archive(until=until))
            numbers.append((await self.store.prune(AN_HOUR, limit=10)).number)

        assert numbers == [0, 0, 1, 2]
        await self.store.remove(Archive, ARCHIVE_NAME)
        assert (await self.store.prune(AN_HOUR, limit=10)).number == 2

    async def test_archiving_keeps_whole_days(self, worker: ManualWorker) -> None:
        """Stores that delete whole days at once keep one that was not archived, too."""
        await self.enqueue_and_settle(worker, complete)
        begun = self.clock.now()
        self.clock.advance(timedelta(days=30))
        await self.store.put(Archive(until=begun))

        assert (await self.store.prune(Retention(), limit=10)).number == 0

        await self.store.put(Archive(until=begun + timedelta(days=1)))
        assert (await self.store.prune(Retention(), limit=10)).number == 1
