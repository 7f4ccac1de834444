"""A worker drains hundreds of queues, one for each customer, on every store. (F8)"""

import asyncio

import pytest

from windlass import App, WorkerSettings
from windlass._store.protocol import Store

QUEUES = [f"customer-{number:03}" for number in range(600)]
CALLERS = 128
LIMIT_SECONDS = 60.0


async def enqueued(store: Store) -> tuple[App, list[str]]:
    """Return an app with one task in each queue, which many callers enqueued at once, and what has run."""
    ran: list[str] = []
    app, room = App(store), asyncio.Semaphore(CALLERS)

    @app.task(name="note")
    async def note(queue: str) -> None:
        ran.append(queue)

    async def send(queue: str) -> None:
        async with room:
            await note.using(queue=queue).aenqueue(queue=queue)

    async with asyncio.TaskGroup() as group:
        for queue in QUEUES:
            group.create_task(send(queue))
    return app, ran


@pytest.mark.parametrize("named", [True, False], ids=["named", "all"])
async def test_a_drain_leaves_no_queue_out(store: Store, named: bool) -> None:
    app, ran = await enqueued(store)
    settings = (
        WorkerSettings(queues=tuple(QUEUES), drain=True, keeper=False)
        if named
        else WorkerSettings(all_queues=True, drain=True, keeper=False)
    )

    async with asyncio.timeout(LIMIT_SECONDS):
        await app.worker(settings).run()

    assert sorted(ran) == QUEUES
