"""What a store notes of a join goes with its record, or it would keep its predecessors for ever."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from windlass._model.filter import Expire, Filter
from windlass._model.lease import Claimed
from windlass._model.queue import QueueSettings, Retention
from windlass._model.task import TaskId
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.script import Query
from windlass._stores.redis import RedisStore
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    Ending,
    a_task,
    bury,
    cancel,
    complete,
    discard,
    enqueue_and_claim,
    enqueue_and_settle,
    enqueue_one,
    exists,
    replay,
    settle_now,
    stop,
    worker_on,
)

AT_ONCE = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
FOR_EVER = Retention(completed=None, cancelled=None, dead=None)
JOINS = "joins"

Ends = Callable[["Case"], Awaitable[TaskId]]


async def entries_of(store: Store) -> set[tuple[TaskId, TaskId]]:
    """Return the pairs of predecessor and successor in a store; those of Redis from both of their ends."""
    match store:
        case MemoryStore():
            tables = store._tables
            pairs = {(one, other) for one, others in tables.successors.items() for other in others}
            pairs |= {(one, other) for other, some in tables.predecessors.items() for one in some}
            return pairs | {(one, other) for other, some in tables.joined.items() for one in some}
        case SQLiteStore():
            with closing(sqlite3.connect(store.path)) as connection:
                return {*connection.execute("SELECT predecessor, successor FROM windlass_dependency")}
        case PostgresStore():
            schema = store.connections.address.schema
            sql = f"SELECT predecessor::text, successor::text FROM {schema}.dependency"
            return {(row[0], row[1]) for row in await store.connections.fetch(Query("", sql=sql))}
        case RedisStore():
            return await _entries_on_redis(store)
        case _:
            raise AssertionError(f"the pairs of {store} are those of another store")


async def _entries_on_redis(store: RedisStore) -> set[tuple[TaskId, TaskId]]:
    client, keys = store._database.client, store._database.keys
    pairs = set()
    for key in await client.call("KEYS", f"{keys.prefix}[sw]:*"):
        kind, _, named = key.removeprefix(keys.prefix.encode()).decode().partition(":")
        for member in await client.members(key.decode()):
            pairs.add((named, member) if kind == "s" else (member, named))
    return pairs


class Case:
    """A join, and its predecessors: one that has completed, a dead one, and one that runs."""

    def __init__(self, store: Store, clock: ManualClock, fields: dict[str, str]) -> None:
        self.store, self.clock, self.fields = store, clock, fields

    async def begin(self) -> None:
        self.worker = await worker_on(self.store, lease_for=timedelta(days=400))
        self.done = (await enqueue_and_settle(self.store, self.worker, complete)).task.id
        self.dead = (await enqueue_and_settle(self.store, self.worker, bury)).task.id
        self.running = await enqueue_and_claim(self.store, self.worker)

    async def join(self, *after: TaskId, **changes: Any) -> TaskId:
        return await enqueue_one(self.store, queue=JOINS, after=after, **{**self.fields, **changes})

    async def waiting(self, **changes: Any) -> TaskId:
        return await self.join(self.done, self.dead, self.running.task.id, **changes)

    async def claimed(self) -> Claimed:
        """Return a join that runs, all of whose predecessors have completed."""
        await self.join(self.done, self.running.task.id)
        await settle_now(self.store, complete(self.running, b"1"))
        return await self.worker.claim_one(JOINS)

    async def ended(self, ending: Ending) -> TaskId:
        claimed = await self.claimed()
        await settle_now(self.store, ending(claimed))
        return claimed.task.id

    async def expire(self) -> None:
        self.clock.advance(timedelta(hours=2))
        until = self.clock.now() + timedelta(microseconds=1)
        await self.store.apply(Expire(), Filter(expires_before=until), limit=10)


async def completed(case: Case) -> TaskId:
    return await case.ended(complete)


async def dead(case: Case) -> TaskId:
    return await case.ended(bury)


async def stopped(case: Case) -> TaskId:
    return await case.ended(stop)


async def discarded(case: Case) -> TaskId:
    last = await case.ended(bury)
    await discard(case.store, last)
    return last


async def cancelled_while_it_waits(case: Case) -> TaskId:
    last = await case.waiting()
    await cancel(case.store, last)
    return last


async def cancelled_while_it_is_ready(case: Case) -> TaskId:
    last = await case.join(case.done)
    await cancel(case.store, last)
    return last


async def expired_while_it_waits(case: Case) -> TaskId:
    last = await case.waiting(expires_in=timedelta(hours=1))
    await case.expire()
    return last


async def expired_while_it_is_ready(case: Case) -> TaskId:
    last = await case.join(case.done, expires_in=timedelta(hours=1))
    await case.expire()
    return last


async def with_a_predecessor_that_was_stopped(case: Case) -> TaskId:
    last = await case.waiting()
    await settle_now(case.store, stop(case.running))
    return last


async def with_a_predecessor_that_was_discarded(case: Case) -> TaskId:
    last = await case.waiting()
    await discard(case.store, case.dead)
    return last


async def enqueued_too_late(case: Case) -> TaskId:
    await settle_now(case.store, stop(case.running))
    return await case.waiting()


async def with_a_chain_that_ends_in_a_duplicate(case: Case) -> TaskId:
    await enqueue_one(case.store, fingerprint="f")
    last = await case.waiting()
    step = a_task(fingerprint="f", before=(last,))
    await settle_now(case.store, complete(case.running, b"1", step))
    return last


async def with_a_step_that_came_after_its_end(case: Case) -> TaskId:
    last = await case.waiting()
    await cancel(case.store, last)
    step = a_task(before=(last,))
    await settle_now(case.store, complete(case.running, b"1", step))
    return last


async def replayed_and_completed(case: Case) -> TaskId:
    last = await case.waiting()
    await cancel(case.store, last)
    await replay(case.store, last)
    await settle_now(case.store, complete(await case.worker.claim_one(JOINS)))
    return last


async def replayed_and_dead(case: Case) -> TaskId:
    last = await case.ended(bury)
    await replay(case.store, last)
    await settle_now(case.store, bury(await case.worker.claim_one(JOINS)))
    return last


async def completed_with_another(case: Case) -> TaskId:
    """One settlement completes it, and a task with a step that was to come before it."""
    claimed = await case.claimed()
    other = await enqueue_and_claim(case.store, case.worker)
    step = a_task(before=(claimed.task.id,))
    await settle_now(case.store, complete(other, b"1", step), complete(claimed, b"2"))
    return claimed.task.id


ENDS = (
    *(completed, dead, stopped, discarded),
    *(cancelled_while_it_waits, cancelled_while_it_is_ready),
    *(expired_while_it_waits, expired_while_it_is_ready),
    *(with_a_predecessor_that_was_stopped, with_a_predecessor_that_was_discarded, enqueued_too_late),
    *(with_a_chain_that_ends_in_a_duplicate, with_a_step_that_came_after_its_end),
    *(replayed_and_completed, replayed_and_dead, completed_with_another),
)


@pytest.mark.parametrize("factory", ["memory", "sqlite", "postgres", "valkey"], indirect=True)
@pytest.mark.parametrize("fields", [{"result_into": "results"}, {}], ids=["results", "order"])
@pytest.mark.parametrize("end", ENDS)
async def test_nothing_is_left_of_a_join_when_its_record_is_gone(
    store: Store, clock: ManualClock, end: Ends, fields: dict[str, str]
) -> None:
    """Although its predecessors are kept: those that are dead or run may be kept for ever."""
    case = Case(store, clock, fields)
    await store.put(QueueSettings(name=JOINS, retention=AT_ONCE))
    await case.begin()
    last = await end(case)
    is_over = end in (completed, replayed_and_completed, completed_with_another)
    if is_over and not isinstance(store, MemoryStore):  # That one goes by the state of the join.
        assert last not in {successor for _, successor in await entries_of(store)}

    clock.advance(timedelta(days=2))
    await store.prune(FOR_EVER, limit=100)

    assert not await exists(store, last)
    assert last not in {successor for _, successor in await entries_of(store)}
    needed = {predecessor for predecessor, _ in await entries_of(store)}
    assert needed == set()
