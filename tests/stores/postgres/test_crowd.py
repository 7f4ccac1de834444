"""Many workers in one process: they share connections, and one task wakes a few of them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import asyncpg
import pytest

from tests.loops.workers import eventually, pause
from windlass import App, Worker, WorkerSettings
from windlass._model.filter import Page
from windlass._model.record import Session
from windlass._stores import listeners
from windlass._stores.postgres import PostgresStore
from windlass.testing.conformance.steps import worker_on

WORKERS = 200
SETTINGS = WorkerSettings(
    slots=1,
    heartbeat=timedelta(seconds=5),
    lease=timedelta(seconds=60),
    poll=timedelta(hours=1),  # so that every claim here is due to a wake
    keeper=False,
)


class Crowd:
    """The workers, and which tasks they ran."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[int] = []
        self.workers: list[Worker] = [app.worker(SETTINGS) for _ in range(WORKERS)]

        @app.task(name="note")
        async def note(n: int) -> None:
            self.ran.append(n)

        self.note = note

    @property
    def claims(self) -> int:
        return sum(one.held.claims for one in self.workers)

    async def rest(self) -> None:
        """Wait until nobody has claimed for a while."""
        while True:
            before = self.claims
            await pause(0.5)
            if self.claims == before:
                return


@pytest.fixture
async def crowd(url: str) -> AsyncIterator[Crowd]:
    crowd = Crowd(App(url))
    async with crowd.app, AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(one) for one in crowd.workers))
        yield crowd


async def test_heartbeats_that_coincide_are_one_statement(store: PostgresStore) -> None:
    workers = [await worker_on(store) for _ in range(50)]
    twice = [*workers, workers[0]]  # in one statement a session may occur once

    replies = await asyncio.gather(*(one.beat() for one in workers))
    renewed_at = {one.beat_at for one in (await store.records(Session, Page(limit=100))).items}
    again = await asyncio.gather(*(one.beat() for one in twice))

    assert all(reply.alive and reply.workers == 50 for reply in (*replies, *again))
    assert len(renewed_at) <= 3  # the first alone, then all that came meanwhile


async def test_of_heartbeats_that_coincide_only_those_of_lost_sessions_say_so(store: PostgresStore) -> None:
    workers = [await worker_on(store) for _ in range(9)]
    for one in workers[::2]:
        await store.remove(Session, one.session)

    replies = await asyncio.gather(*(one.beat() for one in workers))

    assert [reply.alive for reply in replies] == [n % 2 == 1 for n in range(9)]


async def connections(url: str) -> int:
    """How many connections windlass has to the server."""
    asking = await asyncpg.connect(url.partition("?")[0])
    try:
        name = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'windlass%'"
        return int(await asking.fetchval(name))
    finally:
        await asking.close()


async def test_two_hundred_workers(url: str, crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "PATIENCE_SECONDS", 3600.0)  # a slow machine must not wake more
    assert len((await crowd.app.store.records(Session, Page(limit=1000))).items) == WORKERS
    assert sum(one.name == "windlass-heartbeat" for one in threading.enumerate()) == 1
    assert sum(one.name == "windlass-loop-watch" for one in threading.enumerate()) == 1

    async def are_shared() -> bool:  # a pool for claims, one for heartbeats, a listener
        return await connections(url) <= 2 * 8 + 1

    await eventually(are_shared)  # those of other tests may still be closing

    await crowd.rest()
    before = crowd.claims
    for n in range(5):
        await crowd.note.aenqueue(n=n)
        await eventually(lambda n=n: len(crowd.ran) == n + 1)  # type: ignore[misc]
    await crowd.rest()

    assert crowd.ran == list(range(5))
    assert crowd.claims - before < WORKERS  # of 1,000 if all were woken; and none by polling

    await crowd.note.aenqueue_many([{"n": n} for n in range(5, 1000)])
    await eventually(lambda: len(crowd.ran) == 1000, within=40)
    busy = sum(one.ran > 0 for one in crowd.workers)
    assert busy > WORKERS / 4  # many tasks wake many workers
