"""Unique tasks: of equal ones only one is open, and only one is enqueued in a period."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from ..._ids import new_id
from ..._model.lease import Claimed
from ..._model.queue import Retention
from ..._model.state import State
from ..._model.task import Enqueued, Task
from ..._model.verdict import Receipt
from ..._store.protocol import Store
from ...errors import DuplicateTask, NotFound
from .steps import ManualWorker, StoreTest, a_task, bury, complete, retry, some_tasks

AT_ONCE = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
HOUR = timedelta(hours=1)
KEY = {"idempotency_key": "k", "idempotency_digest": "d"}
EDITED: dict[str, Any] = {"payload": b'{"n":2}', "fingerprint": "g"}
PERIOD = {"fingerprint": "f", "unique_for": HOUR}
NEXT = b'[{"id":"00000000-0000-7000-8000-000000000009","type":"x", "payload":{}}]'


class TestFingerprints(StoreTest):
    async def test_a_duplicate_is_refused_and_names_the_existing_task(self) -> None:
        first = await self.enqueue_one(fingerprint="f")

        async with self.refused(DuplicateTask) as refusal:
            await self.store.enqueue([a_task(), a_task(fingerprint="f"), a_task()])

        assert refusal.value.standing == first

    async def test_two_in_a_batch_are_refused_together(self) -> None:
        async with self.refused(DuplicateTask):
            await self.store.enqueue(some_tasks(2, fingerprint="f"))

    async def test_repeating_the_first_itself_is_harmless(self) -> None:
        new, other = some_tasks(2, fingerprint="f", **KEY)
        await self.store.enqueue([new])

        for repeated in (new, other):  # By id and by key.
            assert list(await self.store.enqueue([repeated])) == [Enqueued(id=new.id, created=False)]

    async def test_a_fingerprint_is_held_until_the_task_ends(self, worker: ManualWorker) -> None:
        claimed = await self.enqueue_and_claim(worker, fingerprint="f")
        with pytest.raises(DuplicateTask):
            await self.enqueue_one(fingerprint="f")
        await self.settle_now(retry(claimed, timedelta(seconds=5)))

        with pytest.raises(DuplicateTask):
            await self.enqueue_one(fingerprint="f")

    @pytest.mark.parametrize("end", ["completed", "dead", "cancelled"])
    async def test_a_fingerprint_is_free_after_the_end(self, worker: ManualWorker, end: str) -> None:
        claimed = await self.enqueue_and_claim(worker, fingerprint="f")
        if end == "cancelled":
            await self.cancel(claimed.task.id)
            await self.settle_now(retry(claimed))
        else:
            await self.settle_now(complete(claimed) if end == "completed" else bury(claimed))
        assert await self.state_of(claimed.task.id) == end

        (result,) = await self.store.enqueue([a_task(fingerprint="f")])

        assert result.created

    async def test_a_replay_is_refused_while_a_duplicate_has_not_ended(self, worker: ManualWorker) -> None:
        dead = await self.enqueue_and_settle(worker, bury, fingerprint="f")
        await self.enqueue_one(fingerprint="f")

        async with self.unchanged():
            assert list(await self.replay(dead.task.id)) == []

    async def test_of_two_dead_duplicates_only_the_older_is_replayed(self, worker: ManualWorker) -> None:
        ids = [(await self.enqueue_and_settle(worker, bury, fingerprint="f")).task.id for _ in range(2)]

        assert list(await self.replay(*ids)) == ids[:1]

    async def test_a_replayed_task_holds_its_fingerprint_again(self, worker: ManualWorker) -> None:
        dead = await self.enqueue_and_settle(worker, bury, fingerprint="f")
        await self.replay(dead.task.id)

        with pytest.raises(DuplicateTask) as refusal:
            await self.enqueue_one(fingerprint="f")

        assert refusal.value.standing == dead.task.id
        assert await self.exists(dead.task.id)

    async def _end_one(self, worker: ManualWorker, end: str) -> str:
        """Enqueue a task with the fingerprint "f", and let it end so."""
        if end == "dead":
            return (await self.enqueue_and_settle(worker, bury, fingerprint="f")).task.id
        task_id = await self.enqueue_one(fingerprint="f")
        await self.cancel(task_id)
        return task_id

    @pytest.mark.parametrize("end", ["dead", "cancelled"])
    async def test_an_edited_replay_has_the_fingerprint_of_the_new_payload(
        self, worker: ManualWorker, end: str
    ) -> None:
        task_id = await self._end_one(worker, end)
        await self.enqueue_one(fingerprint="f")

        assert list(await self.replay(task_id, **EDITED)) == [task_id]

        task = await self.load(task_id)
        assert (task.state, task.fingerprint, task.payload) == (State.READY, "g", b'{"n":2}')
        with pytest.raises(DuplicateTask) as refusal:
            await self.enqueue_one(fingerprint="g")
        assert refusal.value.standing == task_id

    @pytest.mark.parametrize("end", ["dead", "cancelled"])
    async def test_an_edited_replay_is_refused_while_an_equal_task_has_not_ended(
        self, worker: ManualWorker, end: str
    ) -> None:
        task_id = await self._end_one(worker, end)
        await self.enqueue_one(fingerprint="g")

        async with self.unchanged():
            assert list(await self.replay(task_id, **EDITED)) == []
        assert (await self.load(task_id)).state == end

    async def test_a_task_without_a_fingerprint_gets_none_by_a_replay(self, worker: ManualWorker) -> None:
        dead = await self.enqueue_and_settle(worker, bury)
        await self.replay(dead.task.id, **EDITED)

        assert (await self.load(dead.task.id)).fingerprint is None
        await self.enqueue_one(fingerprint="g")


class TestUniquePeriods(StoreTest):
    """A fingerprint that is refused for a period, which may outlive its task."""

    async def test_a_repeat_within_the_period_names_the_first_task(self, worker: ManualWorker) -> None:
        first = (await self.enqueue_and_settle(worker, complete, **PERIOD)).task.id
        self.clock.advance(HOUR - timedelta(microseconds=1))

        async with self.refused(DuplicateTask) as refusal:
            await self.store.enqueue([a_task(), a_task(**PERIOD), a_task()])

        assert refusal.value.standing == first

    @pytest.mark.parametrize("end", ["pruned", "discarded", "cancelled"])
    async def test_a_period_lasts_whatever_becomes_of_its_task(self, worker: ManualWorker, end: str) -> None:
        first = await self.enqueue_one(**PERIOD)
        if end == "cancelled":
            await self.cancel(first)
        else:
            claimed = await worker.claim_one()
            await self.settle_now(complete(claimed) if end == "pruned" else bury(claimed))
        if end == "discarded":
            await self.discard(first)
        self.clock.advance(1)
        await self.store.prune(AT_ONCE, limit=10)
        assert not await self.exists(first)

        async with self.refused(DuplicateTask) as refusal:
            await self.store.enqueue([a_task(**PERIOD)])

        assert refusal.value.standing == first

    async def test_a_period_begins_at_the_enqueue_and_ends(self, worker: ManualWorker) -> None:
        await self.enqueue_one(delay=timedelta(minutes=30), **PERIOD)
        self.clock.advance(timedelta(minutes=30))
        await self.store.promote(1)
        await worker.beat(opening=True)
        await self.settle_now(complete(await worker.claim_one()))
        self.clock.advance(timedelta(minutes=30))

        (second,) = await self.store.enqueue([a_task(**PERIOD)])

        assert second.created
        with pytest.raises(DuplicateTask) as refusal:
            await self.enqueue_one(**PERIOD)
        assert refusal.value.standing == second.id

    async def test_after_its_period_a_task_that_has_not_ended_is_still_in_the_way(self) -> None:
        first = await self.enqueue_one(**PERIOD)
        self.clock.advance(HOUR)
        await self.store.prune(AT_ONCE, limit=10)

        with pytest.raises(DuplicateTask) as refusal:
            await self.enqueue_one(**PERIOD)

        assert refusal.value.standing == first

    async def test_a_period_binds_those_who_ask_for_one(self, worker: ManualWorker) -> None:
        await self.enqueue_and_settle(worker, complete, **PERIOD)

        (other,) = await self.store.enqueue([a_task(fingerprint="f")])

        assert other.created

    async def test_each_tenant_has_periods_of_its_own(self) -> None:
        batch = [a_task(tenant=tenant, fingerprint=f"f{tenant}", unique_for=HOUR) for tenant in ("", "a")]

        assert [one.created for one in await self.store.enqueue(batch)] == [True, True]

    async def test_a_refused_batch_begins_no_period(self) -> None:
        with pytest.raises(NotFound):
            await self.store.enqueue([a_task(**PERIOD), a_task(after=(new_id(),))])

        (result,) = await self.store.enqueue([a_task(**PERIOD)])

        assert result.created

    async def test_a_repeat_by_id_or_by_key_is_harmless(self, worker: ManualWorker) -> None:
        term = {"idempotency_for": HOUR, **KEY, **PERIOD}
        new, other = some_tasks(2, **term)
        await self.store.enqueue([new])
        await self.settle_now(complete(await worker.claim_one()))
        self.clock.advance(1)
        await self.store.prune(AT_ONCE, limit=10)

        for repeated in (new, other):
            assert list(await self.store.enqueue([repeated])) == [Enqueued(id=new.id, created=False)]

    async def test_a_repeat_by_id_is_harmless_after_the_record_was_pruned(self, worker: ManualWorker) -> None:
        new = a_task(**PERIOD)
        await self.store.enqueue([new])
        await self.settle_now(complete(await worker.claim_one()))
        self.clock.advance(1)
        await self.store.prune(AT_ONCE, limit=10)

        assert list(await self.store.enqueue([new])) == [Enqueued(id=new.id, created=False)]

    async def test_a_repeat_by_key_begins_no_period(self, worker: ManualWorker) -> None:
        first = await self.enqueue_and_settle(worker, complete, **KEY, **PERIOD)
        self.clock.advance(HOUR)
        repeated = await self.store.enqueue([a_task(**KEY, **PERIOD)])
        assert list(repeated) == [Enqueued(id=first.task.id, created=False)]

        (result,) = await self.store.enqueue([a_task(**PERIOD)])

        assert result.created

    async def test_a_replay_neither_minds_nor_begins_a_period(self, worker: ManualWorker) -> None:
        dead = await self.enqueue_and_settle(worker, bury, **PERIOD)

        assert list(await self.replay(dead.task.id)) == [dead.task.id]
        await self.settle_now(complete(await worker.claim_one(dead.task.queue)))
        self.clock.advance(HOUR)
        assert (await self.store.enqueue([a_task(**PERIOD)]))[0].created

    async def test_many_are_refused_together(self) -> None:
        batch = [a_task(fingerprint=f"f{number}", unique_for=HOUR) for number in range(1000)]
        await self.store.enqueue(batch)

        async with self.refused(DuplicateTask):
            await self.store.enqueue([a_task(), *(a_task(fingerprint="f7", unique_for=HOUR),)])


class TestUniqueSuccessors(StoreTest):
    """A successor that is equal to an open task is cancelled, and the settlement succeeds."""

    async def test_a_duplicate_is_cancelled_and_names_the_other(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        standing = await self.enqueue_one(fingerprint="f", queue="other")
        successor = a_task(root=held.task.id, fingerprint="f", next=NEXT)

        await self.settle_now(complete(held, b"1", successor))

        task = await self.load(successor.id)
        assert (task.state, task.fingerprint, task.next) == (State.CANCELLED, "f", NEXT)
        assert task.finished_at == self.clock.now()
        assert task.error is not None
        assert task.error.type == "Duplicate"
        assert standing in task.error.message
        assert await self.state_of(held.task.id) is State.COMPLETED
        assert await worker.claim_ids(10) == []

    async def test_of_equal_successors_the_first_is_enqueued(self, worker: ManualWorker) -> None:
        held = [await self.enqueue_and_claim(worker) for _ in range(2)]
        successors = some_tasks(2, fingerprint="f")

        await self.settle_now(*(complete(one, b"1", new) for one, new in zip(held, successors, strict=True)))

        assert [await self.state_of(new.id) for new in successors] == [State.READY, State.CANCELLED]

    async def test_a_task_that_completes_makes_room_for_its_equal_successor(
        self, worker: ManualWorker
    ) -> None:
        held = [await self.enqueue_and_claim(worker, fingerprint=name) for name in ("f", "g")]
        successors = [a_task(fingerprint=name) for name in ("g", "f")]

        await self.settle_now(*(complete(one, b"1", new) for one, new in zip(held, successors, strict=True)))

        assert [await self.state_of(new.id) for new in successors] == [State.READY, State.READY]

    async def test_a_period_counts_for_successors_and_a_cancelled_one_begins_none(
        self, worker: ManualWorker
    ) -> None:
        first = await self.enqueue_and_settle(worker, complete, **PERIOD)
        held = await self.enqueue_and_claim(worker)
        self.clock.advance(timedelta(minutes=30))
        successor = a_task(**PERIOD)
        await self.settle_now(complete(held, b"1", successor))
        assert first.task.id in message_of(await self.load(successor.id))

        self.clock.advance(timedelta(minutes=30))

        assert (await self.store.enqueue([a_task(**PERIOD)]))[0].created

    async def test_a_duplicate_of_an_open_task_begins_no_period(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        standing = await self.enqueue_one(fingerprint="f")
        await self.settle_now(complete(held, b"1", a_task(**PERIOD)))
        await self.settle_now(complete(await worker.claim_one()))
        assert await self.state_of(standing) is State.COMPLETED

        assert (await self.store.enqueue([a_task(**PERIOD)]))[0].created

    async def test_a_cancelled_duplicate_can_be_replayed_once_there_is_room(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        await self.enqueue_one(fingerprint="f")
        successor = a_task(fingerprint="f")
        await self.settle_now(complete(held, b"1", successor))
        assert list(await self.replay(successor.id)) == []
        await self.settle_now(complete(await worker.claim_one()))

        assert list(await self.replay(successor.id)) == [successor.id]

        assert (await worker.claim_one()).task.id == successor.id

    async def test_what_waits_for_a_duplicate_is_cancelled_with_it(self, held: Claimed) -> None:
        standing = await self.enqueue_one(fingerprint="f")
        successor = a_task(fingerprint="f")
        waiting = a_task(after=(successor.id,))

        await self.settle_now(complete(held, b"1", successor, waiting))

        assert await self.state_of(waiting.id) is State.CANCELLED
        assert await self.state_of(standing) is State.READY

    async def test_the_end_of_a_group_is_cancelled_with_a_duplicate_in_one_of_its_chains(
        self, held: Claimed
    ) -> None:
        await self.enqueue_one(fingerprint="f")
        last = await self.enqueue_one(after=(held.task.id,))
        successor = a_task(fingerprint="f", before=(last,))

        await self.settle_now(complete(held, b"1", successor))

        task = await self.load(last)
        assert (task.state, successor.id in message_of(task)) == (State.CANCELLED, True)


class TestConcurrentDuplicates(StoreTest):
    """Of equal tasks from several programs at once only one is open."""

    @pytest.fixture
    async def handles(self, store: Store) -> AsyncIterator[list[Store]]:
        handles = [store.another() for _ in range(4)]
        for handle in handles:
            await handle.open()
        yield handles
        for handle in handles:
            await handle.close()

    @pytest.mark.parametrize("unique", [{"fingerprint": "f"}, PERIOD])
    async def test_one_of_many_enqueues_succeeds(self, handles: list[Store], unique: dict[str, Any]) -> None:
        calls = [handle.enqueue([a_task(), a_task(**unique)]) for handle in handles * 3]

        results = await asyncio.gather(*calls, return_exceptions=True)

        (created,) = [one for one in results if not isinstance(one, BaseException)]
        refused = [one for one in results if isinstance(one, DuplicateTask)]
        assert len(refused) == len(results) - 1
        assert {one.standing for one in refused} == {created[1].id}
        assert len(await self.all_tasks()) == 2

    async def test_one_of_many_successors_is_enqueued(
        self, worker: ManualWorker, handles: list[Store]
    ) -> None:
        held = [await self.enqueue_and_claim(worker) for _ in range(12)]
        successors = some_tasks(len(held), **PERIOD)
        settlements = [complete(one, b"1", new) for one, new in zip(held, successors, strict=True)]
        waiting = [a_task(after=(one.task.id,), fingerprint="f") for one in held]

        settled, refused = await asyncio.gather(
            asyncio.gather(*(h.settle([one]) for h, one in zip(handles * 3, settlements, strict=True))),
            asyncio.gather(
                *(h.enqueue([one]) for h, one in zip(handles * 3, waiting, strict=True)),
                return_exceptions=True,
            ),
        )

        assert {one.receipts for one in settled} == {(Receipt.APPLIED,)}
        tasks = [task for task in await self.all_tasks() if task.fingerprint == "f"]
        ended = [task for task in tasks if task.state is State.CANCELLED]
        assert len(tasks) - len(ended) == 1
        assert {task.error.type for task in ended if task.error is not None} <= {"Duplicate"}
        assert {type(one) for one in refused if isinstance(one, BaseException)} <= {DuplicateTask}


def message_of(task: Task) -> str:
    """The message of a task's error; "" if it has none."""
    return "" if task.error is None else task.error.message
