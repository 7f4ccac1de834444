"""Enqueue: batches are atomic, and idempotency keys prevent duplicates."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ..._ids import new_id
from ..._model.filter import Filter
from ..._model.lease import Claimed
from ..._model.queue import Retention
from ..._model.state import State
from ..._model.task import EARLIEST, MAX_DELAY, Enqueued, Task
from ..._policy.order.rank import boost
from ...errors import IdempotencyConflict, InvalidOption, NotFound
from ..clock import START
from .steps import FIELDS, ManualWorker, StoreTest, a_task, bury, complete, some_tasks

AT_ONCE = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
KEY = {"idempotency_key": "k", "idempotency_digest": "d"}
REUSED = {"idempotency_key": "k", "idempotency_digest": "other"}


class TestEnqueue(StoreTest):
    async def test_every_field_is_returned_as_it_was_given(self) -> None:
        root = await self.enqueue_one()
        self.clock.advance(timedelta(microseconds=123_457))
        due = self.clock.now() + timedelta(microseconds=654_321)
        new = a_task(root=root, run_at=due, after=(root,), **FIELDS)
        usual = a_task()
        same = {name for name in _GIVEN if getattr(new, name) == getattr(usual, name)}
        assert same == {"delay", "before", "expires_in"}

        await self.store.enqueue([new])

        assert await self.load(new.id) == Task(
            boost=boost(new.priority, None),
            state=State.WAITING,
            attempt=0,
            fence=0,
            run_at=due,
            created_at=self.clock.now(),
            **{name: getattr(new, name) for name in Task.__struct_fields__ if name in _GIVEN},
        )

    async def test_results_are_in_the_order_of_the_tasks(self) -> None:
        batch = some_tasks(5)[::-1]

        results = await self.store.enqueue(batch)

        assert list(results) == [Enqueued(id=new.id, created=True) for new in batch]

    async def test_an_empty_batch_is_harmless(self) -> None:
        assert list(await self.store.enqueue([])) == []

    async def test_a_large_batch_is_enqueued_whole(self) -> None:
        batch = some_tasks(1000)

        await self.store.enqueue(batch)

        assert [task.id for task in await self.all_tasks()] == [new.id for new in batch]

    async def test_due_now_is_ready_and_due_later_is_scheduled(self) -> None:
        due = await self.enqueue_one(run_at=self.clock.now())
        past = await self.enqueue_one(run_at=self.clock.now() - timedelta(days=1))
        zero = await self.enqueue_one(delay=timedelta(0))
        later = await self.enqueue_one(delay=timedelta(seconds=1))
        dated = await self.enqueue_one(run_at=self.clock.now() + timedelta(microseconds=1))

        assert [await self.state_of(task_id) for task_id in (due, past, zero)] == [State.READY] * 3
        assert [await self.state_of(task_id) for task_id in (later, dated)] == [State.SCHEDULED] * 2

    async def test_a_delay_counts_from_the_stores_now(self) -> None:
        self.clock.advance(3600)

        task_id = await self.enqueue_one(delay=timedelta(minutes=5))

        assert (await self.load(task_id)).run_at == self.clock.now() + timedelta(minutes=5)
        assert await self.store.now() == self.clock.now()

    @pytest.mark.parametrize("number", [1, 3, 1500])
    @pytest.mark.parametrize(
        "when",
        [
            {"run_at": datetime.max.replace(tzinfo=UTC)},
            {"run_at": datetime.min.replace(tzinfo=UTC)},
            {"run_at": EARLIEST - timedelta(microseconds=1)},
            {"run_at": START + MAX_DELAY + timedelta(microseconds=1)},
            {"delay": MAX_DELAY + timedelta(microseconds=1)},
            {"delay": timedelta(microseconds=-1)},
        ],
        ids=lambda when: str(*when.values()),
    )
    @pytest.mark.parametrize("plain", [True, False])
    async def test_what_is_due_before_1970_or_ten_years_ahead_is_refused(
        self, when: dict[str, Any], number: int, *, plain: bool
    ) -> None:
        batch = some_tasks(number)
        batch[-1] = replace(batch[-1], fingerprint=None if plain else "f", **when)

        async with self.refused(InvalidOption):
            await self.store.enqueue(batch)

    async def test_the_bounds_of_run_at_are_accepted(self) -> None:
        first = await self.enqueue_one(run_at=EARLIEST)
        last = await self.enqueue_one(run_at=START + MAX_DELAY)

        assert (await self.load(first)).run_at == EARLIEST
        assert (await self.load(last)).run_at == START + MAX_DELAY
        assert (await self.store.promote(10)).next_at == START + MAX_DELAY

    async def test_a_successor_out_of_bounds_is_refused_with_its_completion(self, held: Claimed) -> None:
        late = a_task(run_at=START + MAX_DELAY + timedelta(days=1))

        async with self.refused(InvalidOption):
            await self.store.settle([complete(held, b"1", late)])

    async def test_repeating_an_enqueue_is_harmless(self) -> None:
        batch = some_tasks(3, delay=timedelta(seconds=5), fingerprint=None)
        await self.store.enqueue(batch)

        async with self.unchanged():
            self.clock.advance(1)
            results = await self.store.enqueue(batch)

        assert list(results) == [Enqueued(id=new.id, created=False) for new in batch]

    async def test_the_same_id_twice_in_a_batch_is_kept_once(self) -> None:
        new = a_task()

        results = await self.store.enqueue([new, new])

        assert [result.created for result in results] == [True, False]
        assert len(await self.all_tasks()) == 1

    async def test_an_unknown_predecessor_is_refused(self) -> None:
        async with self.refused(NotFound):
            await self.store.enqueue([a_task(), a_task(after=(new_id(),)), a_task()])


_GIVEN = frozenset(a_task().__struct_fields__) - {"run_at"}


class TestIdempotencyKeys(StoreTest):
    async def test_a_repeated_request_returns_the_first_task(self) -> None:
        first = await self.enqueue_one(**KEY)

        async with self.unchanged():
            assert list(await self.store.enqueue([a_task(**KEY)])) == [Enqueued(id=first, created=False)]

    async def test_a_repeat_within_a_batch_is_kept_once(self) -> None:
        batch = some_tasks(2, **KEY)

        results = await self.store.enqueue(batch)

        assert list(results) == [Enqueued(id=batch[0].id, created=created) for created in (True, False)]
        assert [task.id for task in await self.all_tasks()] == [batch[0].id]

    async def test_another_request_with_the_same_key_is_refused(self) -> None:
        first = await self.enqueue_one(**KEY)

        async with self.refused(IdempotencyConflict) as refusal:
            await self.store.enqueue([a_task(), a_task(**REUSED), a_task()])

        assert refusal.value.standing == first

    async def test_a_conflict_within_a_batch_stores_nothing(self) -> None:
        async with self.refused(IdempotencyConflict):
            await self.store.enqueue([a_task(**KEY), a_task(**REUSED)])

    async def test_a_refused_batch_leaves_its_keys_free(self) -> None:
        with pytest.raises(NotFound):
            await self.store.enqueue([a_task(**KEY), a_task(after=(new_id(),))])

        (result,) = await self.store.enqueue([a_task(**REUSED)])

        assert result.created

    async def test_each_tenant_has_keys_of_its_own(self) -> None:
        tenants = ("", "a", "b")

        results = await self.store.enqueue(
            [a_task(tenant=tenant, idempotency_key="k", idempotency_digest=tenant) for tenant in tenants]
        )

        assert [result.created for result in results] == [True, True, True]

    async def test_a_key_outlives_the_end_of_its_task(self, worker: ManualWorker) -> None:
        ended = (await self.enqueue_and_settle(worker, complete, **KEY)).task.id

        assert list(await self.store.enqueue([a_task(**KEY)])) == [Enqueued(id=ended, created=False)]

    async def test_a_key_without_a_lifetime_is_deleted_with_its_task(self, worker: ManualWorker) -> None:
        await self.enqueue_and_settle(worker, complete, **KEY)
        self.clock.advance(1)
        assert (await self.store.prune(AT_ONCE, limit=10)).number == 1

        (result,) = await self.store.enqueue([a_task(**KEY)])

        assert result.created

    async def test_a_key_lives_on_after_its_task_is_pruned_or_discarded(self, worker: ManualWorker) -> None:
        term = {"idempotency_digest": "d", "idempotency_for": timedelta(hours=1)}
        pruned = await self.enqueue_and_settle(worker, complete, idempotency_key="pruned", **term)
        discarded = await self.enqueue_and_settle(worker, bury, idempotency_key="discarded", **term)
        await self.discard(discarded.task.id)
        self.clock.advance(timedelta(hours=1) - timedelta(microseconds=1))
        assert (await self.store.prune(AT_ONCE, limit=10)).number == 1

        results = await self.store.enqueue(
            [a_task(idempotency_key=key, **term) for key in ("pruned", "discarded")]
        )

        assert list(results) == [Enqueued(id=one.task.id, created=False) for one in (pruned, discarded)]
        assert await self.all_tasks() == []

    async def test_a_key_is_free_after_its_lifetime(self) -> None:
        term = {"idempotency_key": "k", "idempotency_for": timedelta(hours=1)}
        first = await self.enqueue_one(idempotency_digest="d", **term)
        self.clock.advance(timedelta(hours=1))

        (result,) = await self.store.enqueue([a_task(idempotency_digest="other", **term)])

        assert result.created
        found = await self.all_tasks(Filter(idempotency_key="k"))
        assert [task.id for task in found] == [first, result.id]

    async def test_pruning_the_old_task_does_not_free_a_reused_key(self, worker: ManualWorker) -> None:
        await self.enqueue_and_settle(worker, complete, idempotency_for=timedelta(seconds=1), **KEY)
        self.clock.advance(2)
        second = await self.enqueue_one(**KEY)
        assert (await self.store.prune(AT_ONCE, limit=10)).number == 1

        assert list(await self.store.enqueue([a_task(**KEY)])) == [Enqueued(id=second, created=False)]
