"""Transactions of the store: enqueues and settlements commit together, or not at all.

For stores with `Capability.JOIN`. A test gets a connection from `store.transaction()` and uses
`store.join(connection)` for the verbs on it; what it enqueues beside the settlement represents the handler's
own writes.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import pytest

from ...._model.state import State
from ...._model.task import NewTask
from ...._model.verdict import Receipt, Settlement
from ...._store.protocol import Capability, Store, Wake
from ....errors import DuplicateTask
from ...clock import ManualClock
from ..steps import (
    ENDINGS,
    a_task,
    complete,
    dump,
    enqueue_and_claim,
    enqueue_one,
    exists,
    load,
    release,
    settle,
    settle_now,
    state_of,
    take_over,
    worker_on,
)
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
            receipts = joined.settle(batch)
            assert not isinstance(receipts, Awaitable), "in a thread nothing can be awaited"
            if undone:
                raise Undone
            return tuple(receipts)

    if blocking:
        return await asyncio.to_thread(here)
    async with store.transaction() as connection:
        joined = store.join(connection)
        await awaited(joined.enqueue(beside))
        receipts = tuple(await awaited(joined.settle(batch)))
        if undone:
            raise Undone
        return receipts


class TestTransactions:
    @pytest.fixture(autouse=True)
    def _able(self, store: Store) -> None:
        if Capability.JOIN not in store.capabilities:
            pytest.skip("this store has no transactions; TestCapabilities sees to it that it says so")

    @each_way
    async def test_a_completion_commits_with_the_other_writes(self, store: Store, *, blocking: bool) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        other = a_task()

        receipts = await transact(store, complete(held, b'"done"'), beside=[other], blocking=blocking)

        task = await load(store, held.task.id)
        assert receipts == (Receipt.APPLIED,)
        assert (task.state, task.result, task.session) == (State.COMPLETED, b'"done"', None)
        assert task.finished_at is not None
        assert await state_of(store, other.id) is State.READY

    @each_way
    async def test_an_exception_rolls_back_both(self, store: Store, *, blocking: bool) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        await enqueue_one(store, after=(held.task.id,))
        before = await dump(store)

        with pytest.raises(Undone):
            await transact(
                store, complete(held, b"1", a_task()), beside=[a_task()], blocking=blocking, undone=True
            )

        assert await dump(store) == before
        await settle_now(store, complete(held))

    async def test_nothing_is_visible_before_the_commit(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        other = a_task()

        async with store.transaction() as connection:
            joined = store.join(connection)
            await awaited(joined.enqueue([other]))
            await awaited(joined.settle([complete(held)]))
            seen = (await state_of(store, held.task.id), await exists(store, other.id))

        assert seen == (State.RUNNING, False)
        assert await state_of(store, held.task.id) is State.COMPLETED

    async def test_an_empty_transaction_changes_nothing(self, store: Store) -> None:
        before = await dump(store)

        async with store.transaction():
            pass

        assert await dump(store) == before

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_transaction_settles_like_the_store(self, store: Store, ending: str) -> None:
        worker = await worker_on(store)
        here, there = await enqueue_and_claim(store, worker), await enqueue_and_claim(store, worker)

        assert await transact(store, ENDINGS[ending](here)) == (Receipt.APPLIED,)
        await settle_now(store, ENDINGS[ending](there))

        one, other = await load(store, here.task.id), await load(store, there.task.id)
        assert (one.state, one.attempt, one.fence, one.error) == (
            other.state,
            other.attempt,
            other.fence,
            other.error,
        )
        (line,) = await store.attempts(one.id)
        assert line.outcome == (await store.attempts(other.id))[0].outcome

    async def test_successors_and_dependents_commit_with_it(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        waiting = await enqueue_one(store, after=(held.task.id,))
        successor = a_task(root=held.task.id)

        await transact(store, complete(held, b"1", successor))

        assert await state_of(store, waiting) is State.READY
        assert await state_of(store, successor.id) is State.READY

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_a_lost_lease_settles_nothing_in_a_transaction(
        self, store: Store, clock: ManualClock, ending: str
    ) -> None:
        stalled = await enqueue_and_claim(store, await worker_on(store))
        await take_over(store, clock, stalled)
        before = await dump(store)

        assert await transact(store, ENDINGS[ending](stalled)) == (Receipt.LOST,)
        assert await dump(store) == before

    async def test_a_lease_settled_elsewhere_is_not_applied(self, store: Store) -> None:
        """Its worker released the task: the transaction must fail, as its other writes must not commit."""
        held = await enqueue_and_claim(store, await worker_on(store))
        await settle_now(store, release(held))
        before = await dump(store)

        assert await transact(store, complete(held)) == (Receipt.REPEATED,)
        assert await dump(store) == before

    async def test_settling_again_afterwards_is_harmless(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        await transact(store, complete(held, b"1", a_task()))
        before = await dump(store)

        for ending in ENDINGS.values():
            assert await settle(store, ending(held)) == (Receipt.REPEATED,)

        assert await dump(store) == before

    async def test_a_refused_enqueue_does_not_affect_the_rest(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        await enqueue_one(store, fingerprint="f")

        async with store.transaction() as connection:
            joined = store.join(connection)
            with pytest.raises(DuplicateTask):
                await awaited(joined.enqueue([a_task(), a_task(fingerprint="f")]))
            await awaited(joined.settle([complete(held)]))

        assert await state_of(store, held.task.id) is State.COMPLETED

    async def test_many_concurrent_transactions_all_finish(self, store: Store) -> None:
        worker = await worker_on(store)
        held = [await enqueue_and_claim(store, worker) for _ in range(8)]

        receipts = await asyncio.gather(
            *(
                transact(store, complete(one), beside=[a_task()], blocking=bool(n % 2))
                for n, one in enumerate(held)
            )
        )

        assert set(receipts) == {(Receipt.APPLIED,)}
        assert {await state_of(store, one.task.id) for one in held} == {State.COMPLETED}

    async def test_an_abandoned_transaction_blocks_nothing(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        entered, never = asyncio.Event(), asyncio.Event()

        async def linger() -> None:
            async with store.transaction() as connection:
                await awaited(store.join(connection).settle([complete(held)]))
                entered.set()
                await never.wait()

        lingering = asyncio.ensure_future(linger())
        await entered.wait()
        lingering.cancel()
        await asyncio.wait([lingering])

        assert lingering.cancelled()
        assert await state_of(store, held.task.id) is State.RUNNING
        await settle_now(store, complete(held))

    async def test_a_commit_wakes(self, store: Store) -> None:
        worker = await worker_on(store)

        async def cause() -> None:
            await transact(store, complete(await enqueue_and_claim(store, worker), None, a_task(queue="q")))

        assert await wakes_up(store, Wake.READY, cause)
