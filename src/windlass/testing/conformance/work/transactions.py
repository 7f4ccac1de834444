"""Transactions of the store: enqueues and settlements commit together, or not at all.

For stores with `Capability.JOIN`. A test gets a connection from `store.transaction()` and uses
`store.join(connection)` for the verbs on it; what it enqueues beside the settlement represents the handler's
own writes.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import pytest
from msgspec.structs import replace

from ...._model.lease import Claimed
from ...._model.state import State
from ...._model.task import NewTask, Progress
from ...._model.verdict import Receipt, Settlement
from ...._store.protocol import Capability, Store, Wake
from ....errors import DuplicateTask
from ..steps import ENDINGS, ManualWorker, StoreTest, a_task, complete, release, some_tasks
from .wakes import wakes_up

T = TypeVar("T")

each_way = pytest.mark.parametrize("blocking", [False, True], ids=["in the loop", "in a thread"])


class Undone(Exception):
    """Raised to roll a transaction back."""


async def awaited(result: T | Awaitable[T]) -> T:
    """Await the result of a join if its driver is async."""
    return await result if isinstance(result, Awaitable) else result


async def transact(
    store: Store,
    *batch: Settlement,
    beside: Sequence[NewTask] = (),
    blocking: bool = False,
    undone: bool = False,
) -> tuple[Receipt, ...]:
    """Enqueue and settle in one transaction; return the receipts, or raise Undone to roll back."""

    def here() -> tuple[Receipt, ...]:
        with store.transaction() as connection:
            joined = store.join(connection)
            joined.enqueue(beside)
            settled = joined.settle(batch)
            assert not isinstance(settled, Awaitable), "in a thread nothing can be awaited"
            if undone:
                raise Undone
            return settled.receipts

    if blocking:
        return await asyncio.to_thread(here)
    async with store.transaction() as connection:
        joined = store.join(connection)
        await awaited(joined.enqueue(beside))
        receipts = (await awaited(joined.settle(batch))).receipts
        if undone:
            raise Undone
        return receipts


class TestTransactions(StoreTest):
    @pytest.fixture(autouse=True)
    def _able(self, store: Store) -> None:
        if Capability.JOIN not in store.capabilities:
            pytest.skip("this store has no transactions; TestCapabilities sees to it that it says so")

    @each_way
    async def test_the_last_progress_commits_with_the_completion(
        self, held: Claimed, *, blocking: bool
    ) -> None:
        whole = Progress(fraction=1.0, message="10 of 10")

        await transact(self.store, replace(complete(held), progress=whole), blocking=blocking)

        assert (await self.load(held.task.id)).progress == whole

    @each_way
    async def test_a_completion_commits_with_the_other_writes(self, held: Claimed, *, blocking: bool) -> None:
        other = a_task()

        receipts = await transact(self.store, complete(held, b'"done"'), beside=[other], blocking=blocking)

        task = await self.load(held.task.id)
        assert receipts == (Receipt.APPLIED,)
        assert (task.state, task.result, task.session) == (State.COMPLETED, b'"done"', None)
        assert task.finished_at is not None
        assert await self.state_of(other.id) is State.READY

    @each_way
    async def test_an_exception_rolls_back_both(self, held: Claimed, *, blocking: bool) -> None:
        await self.enqueue_one(after=(held.task.id,))

        settled = complete(held, b"1", a_task())

        async with self.refused(Undone):
            await transact(self.store, settled, beside=[a_task()], blocking=blocking, undone=True)

        await self.settle_now(complete(held))

    async def test_nothing_is_visible_before_the_commit(self, held: Claimed) -> None:
        other = a_task()

        async with self.store.transaction() as connection:
            joined = self.store.join(connection)
            await awaited(joined.enqueue([other]))
            await awaited(joined.settle([complete(held)]))
            seen = (await self.state_of(held.task.id), await self.exists(other.id))

        assert seen == (State.RUNNING, False)
        assert await self.state_of(held.task.id) is State.COMPLETED

    async def test_an_empty_transaction_changes_nothing(self) -> None:
        async with self.unchanged(), self.store.transaction():
            pass

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_transaction_settles_like_the_store(self, worker: ManualWorker, ending: str) -> None:
        here = await self.enqueue_and_claim(worker)
        there = await self.enqueue_and_settle(worker, ENDINGS[ending])

        assert await transact(self.store, ENDINGS[ending](here)) == (Receipt.APPLIED,)

        one, other = await self.load(here.task.id), await self.load(there.task.id)
        for field in ("state", "attempt", "fence", "error"):
            assert getattr(one, field) == getattr(other, field)
        (line,), (like,) = await self.store.attempts(one.id), await self.store.attempts(other.id)
        assert line.outcome == like.outcome

    async def test_successors_and_dependents_commit_with_it(self, held: Claimed) -> None:
        waiting = await self.enqueue_one(after=(held.task.id,))
        successor = a_task(root=held.task.id)

        await transact(self.store, complete(held, b"1", successor))

        assert await self.state_of(waiting) is State.READY
        assert await self.state_of(successor.id) is State.READY

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_lost_lease_settles_nothing_in_a_transaction(self, held: Claimed, ending: str) -> None:
        await self.take_over(held)

        async with self.unchanged():
            assert await transact(self.store, ENDINGS[ending](held)) == (Receipt.LOST,)

    async def test_a_lease_settled_elsewhere_is_not_applied(self, held: Claimed) -> None:
        """Its worker released the task: the transaction must fail, as its other writes must not commit."""
        await self.settle_now(release(held))

        async with self.unchanged():
            assert await transact(self.store, complete(held)) == (Receipt.REPEATED,)

    async def test_settling_again_afterwards_is_harmless(self, held: Claimed) -> None:
        await transact(self.store, complete(held, b"1", a_task()))

        async with self.unchanged():
            for ending in ENDINGS.values():
                assert await self.settle(ending(held)) == (Receipt.REPEATED,)

    async def test_a_refused_enqueue_does_not_affect_the_rest(self, held: Claimed) -> None:
        await self.enqueue_one(fingerprint="f")

        async with self.store.transaction() as connection:
            joined = self.store.join(connection)
            with pytest.raises(DuplicateTask):
                await awaited(joined.enqueue([a_task(), a_task(fingerprint="f")]))
            await awaited(joined.settle([complete(held)]))

        assert await self.state_of(held.task.id) is State.COMPLETED

    @pytest.mark.parametrize("commits", [True, False])
    async def test_a_period_begins_with_the_commit(self, *, commits: bool) -> None:
        new, again = some_tasks(2, fingerprint="f", unique_for=timedelta(hours=1))
        with suppress(Undone):
            await transact(self.store, beside=[new], undone=not commits)
        await self.cancel(new.id)

        if commits:
            with pytest.raises(DuplicateTask) as refusal:
                await self.store.enqueue([again])
            assert refusal.value.standing == new.id
        else:
            assert (await self.store.enqueue([again]))[0].created

    async def test_a_duplicate_successor_is_cancelled_in_the_transaction(self, held: Claimed) -> None:
        await self.enqueue_one(fingerprint="f")
        successor = a_task(fingerprint="f")

        assert await transact(self.store, complete(held, b"1", successor)) == (Receipt.APPLIED,)

        task = await self.load(successor.id)
        assert (task.state, task.error and task.error.type) == (State.CANCELLED, "Duplicate")

    async def test_many_concurrent_transactions_all_finish(self, worker: ManualWorker) -> None:
        held = [await self.enqueue_and_claim(worker) for _ in range(8)]

        under_way = [
            transact(self.store, complete(one), beside=[a_task()], blocking=bool(n % 2))
            for n, one in enumerate(held)
        ]

        assert set(await asyncio.gather(*under_way)) == {(Receipt.APPLIED,)}
        assert {await self.state_of(one.task.id) for one in held} == {State.COMPLETED}

    async def test_an_abandoned_transaction_blocks_nothing(self, held: Claimed) -> None:
        entered, never = asyncio.Event(), asyncio.Event()

        async def linger() -> None:
            async with self.store.transaction() as connection:
                await awaited(self.store.join(connection).settle([complete(held)]))
                entered.set()
                await never.wait()

        lingering = asyncio.ensure_future(linger())
        await entered.wait()
        lingering.cancel()
        await asyncio.wait([lingering])

        assert lingering.cancelled()
        assert await self.state_of(held.task.id) is State.RUNNING
        await self.settle_now(complete(held))

    async def test_a_commit_wakes(self, worker: ManualWorker) -> None:
        async def cause() -> None:
            held = await self.enqueue_and_claim(worker)
            await transact(self.store, complete(held, None, a_task(queue="q")))

        assert await wakes_up(self.store, Wake.READY, cause)
