"""Who is notified, and when: everybody who waits, and nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from tests.loops.workers import eventually
from windlass._store.protocol import Store, Wake
from windlass._stores.postgres import PostgresStore, notify
from windlass.testing.conformance.steps import complete, enqueue_one, settle, some_tasks, worker_on

DEADLINE = 10.0


@asynccontextmanager
async def notices(store: PostgresStore) -> AsyncIterator[list[str]]:
    """What is notified meanwhile, heard by a stranger who is not named anywhere."""
    heard: list[str] = []
    connection = await asyncpg.connect(store.address.dsn)
    try:
        await connection.add_listener(f"{store.address.schema}.wake", lambda *notice: heard.append(notice[3]))
        yield heard
        # What was notified before this has arrived by the time that it is answered.
        await connection.execute("SELECT 1")
    finally:
        await connection.close()


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[asyncio.Queue[Wake]]:
    """Somebody waits on the queue q, and is known to wait."""
    hints: asyncio.Queue[Wake] = asyncio.Queue()

    async def listen() -> None:
        async with aclosing(store.wakes(["q"])) as stream:
            async for wake in stream:
                hints.put_nowait(wake)

    task = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(DEADLINE):
            while await hints.get() is not Wake.READY:  # The first comes once the name stands.
                continue
        yield hints
    finally:
        task.cancel()
        await asyncio.wait([task])


async def named(store: PostgresStore) -> list[str]:
    """The queues that somebody waits for, by the table."""
    connection = await asyncpg.connect(store.address.dsn)
    try:
        rows = await connection.fetch(f"SELECT unnest(queues) FROM {store.address.schema}.listener")
        return sorted(row[0] for row in rows)
    finally:
        await connection.close()


async def until_named(store: PostgresStore, *queues: str) -> None:
    async def are_named() -> bool:
        return await named(store) == sorted(queues)

    await eventually(are_named)


async def test_nobody_is_notified_while_nobody_waits(store: PostgresStore) -> None:
    async with notices(store) as heard:
        await enqueue_one(store, queue="q")
        await store.enqueue(some_tasks(10, queue="q"))
        await store.enqueue(some_tasks(2000, queue="q"))
        await enqueue_one(store, queue="q", idempotency_key="k")

    assert heard == []


@pytest.mark.parametrize("number", [1, 10, 2000])
async def test_one_who_waits_is_notified_once_a_call(store: PostgresStore, number: int) -> None:
    async with listening(store), notices(store) as heard:
        await store.enqueue(some_tasks(number, queue="q"))
        await store.enqueue(some_tasks(number, queue="other"))

    assert heard == ["q"]


async def test_a_worker_that_has_its_hands_full_is_not_notified(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_BUSY_SECONDS", 0.0)
    worker = await worker_on(store)
    await store.enqueue(some_tasks(20, queue="q"))
    async with listening(store):
        for _ in range(3):
            await settle(store, *[complete(one) for one in await worker.claim(5, "q")])
        await until_named(store, "")

        async with notices(store) as heard:
            await enqueue_one(store, queue="q")
        assert heard == []

        await worker.claim(100, "q")  # More than there is: it has nothing more to do.
        await until_named(store, "", "q")
        async with notices(store) as heard:
            await enqueue_one(store, queue="q")
        assert heard == ["q"]


async def test_what_is_due_much_later_wakes_nobody(store: PostgresStore) -> None:
    async with listening(store), notices(store) as heard:
        await enqueue_one(store, queue="q", delay=timedelta(minutes=1))
        await enqueue_one(store, queue="q", delay=timedelta(seconds=1))

    assert heard == [""]


async def test_who_stops_listening_is_not_named_any_more(store: PostgresStore) -> None:
    async with listening(store):
        await until_named(store, "", "q")

    await until_named(store)


async def test_going_idle_looks_once_more(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was enqueued while the name was not there yet notified nobody: so there is a look after it is."""
    monkeypatch.setattr(notify, "_BUSY_SECONDS", 0.0)
    worker = await worker_on(store)
    await store.enqueue(some_tasks(4, queue="q"))
    async with listening(store) as hints:
        await worker.claim(2, "q")
        await worker.claim(2, "q")
        await until_named(store, "")
        while not hints.empty():
            hints.get_nowait()

        await worker.claim(1, "q")

        async with asyncio.timeout(DEADLINE):
            while await hints.get() is not Wake.READY:
                continue
