"""Windlass in a store with many tasks: bury some, and do each thing that a store is asked for."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from benchmarks.runs import probe
from windlass import App, By, Filter, Page, Retention, State
from windlass._model.filter import Dimension
from windlass.testing.conformance.steps import bury as bury_one
from windlass.testing.conformance.steps import complete, some_tasks, worker_on

AT_ONCE = 1_000
PREPARED = 50
SLOTS = 250
LEASE = timedelta(seconds=1)
DEAD = Filter(states=(State.DEAD,))
BY = By(who="benchmark", why="to time it")


def bury(url: str, number: int) -> dict[str, Any]:
    """Enqueue tasks and let their first attempt be their last."""

    async def work() -> None:
        app = App(url)
        await app.open()
        for _ in range(0, number, AT_ONCE):
            await app.store.enqueue(some_tasks(min(AT_ONCE, number), queue="failing", type="fail"))
        worker = await worker_on(app.store)
        held = await worker.claim(SLOTS, "failing")
        while held:
            claim = worker.next_claim(SLOTS, "failing")
            held = (await app.store.settle([bury_one(one) for one in held], claim)).claimed
        await app.close()

    probe.looped(work())
    return {}


def do(url: str, what: str) -> dict[str, Any]:
    """Do one of the operations."""

    async def work() -> None:
        app = App(url)
        await app.open()
        await OPERATIONS[what](app)
        await app.close()

    probe.looped(work())
    return {}


def _enqueue(size: int, times: int) -> Callable[[App], Awaitable[None]]:
    async def enqueue(app: App) -> None:
        for _ in range(times):
            await app.store.enqueue(some_tasks(size, queue=f"batches of {size}"))

    return enqueue


async def _prepare(app: App, number: int, **given: Any) -> None:
    """Enqueue tasks, few at a time: it is not this that is timed."""
    for _ in range(0, number, PREPARED):
        await app.store.enqueue(some_tasks(PREPARED, **given))


async def _work(app: App) -> None:
    """Claim and settle, 250 at a time."""
    await _prepare(app, 10_000, queue="work")
    worker = await worker_on(app.store)
    held = await worker.claim(SLOTS, "work")
    while held:
        await app.store.settle([complete(one) for one in held])
        held = await worker.claim(SLOTS, "work")


async def _promote(app: App) -> None:
    soon = await app.store.now() + timedelta(seconds=2)
    await _prepare(app, 2 * AT_ONCE, queue="soon", run_at=soon)
    await asyncio.sleep(2.5)
    await app.store.promote(2 * AT_ONCE)


async def _rescue(app: App) -> None:
    await _prepare(app, AT_ONCE, queue="rescue")
    dead = await worker_on(app.store, "dead", lease_for=LEASE)
    await dead.claim(AT_ONCE, "rescue")
    await asyncio.sleep(1.5 * LEASE.total_seconds())
    alive = await worker_on(app.store, "alive")
    while await app.store.rescue(alive.session, SLOTS):
        pass


async def _find(app: App) -> None:
    page = Page(limit=200)
    for where in (Filter(), DEAD, Filter(types=("fail",)), Filter(queues=("later",))):
        await app.operator.find(where, page)


async def _count(app: App) -> None:
    await app.operator.count()
    await app.operator.count(by=tuple(Dimension))


async def _replay(app: App) -> None:
    await app.operator.replay(DEAD, by=BY, limit=AT_ONCE)


async def _cancel(app: App) -> None:
    await app.operator.cancel(Filter(queues=("later",)), by=BY, limit=AT_ONCE)


async def _discard(app: App) -> None:
    await app.operator.discard(DEAD, by=BY, limit=AT_ONCE)


async def _prune(app: App) -> None:
    await app.store.prune(Retention(completed=timedelta(0)), AT_ONCE)


OPERATIONS: dict[str, Callable[[App], Awaitable[None]]] = {
    "enqueue 1": _enqueue(1, 100),
    "enqueue 250": _enqueue(250, 20),
    "enqueue 1,000": _enqueue(1_000, 10),
    "settle 250, claim 250": _work,
    "promote": _promote,
    "rescue": _rescue,
    "find": _find,
    "count": _count,
    "replay": _replay,
    "cancel": _cancel,
    "discard": _discard,
    "prune": _prune,
}


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (bury, do)})
