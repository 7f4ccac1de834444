"""The mistakes of the mutants still have their effects. Part of `make check`: `make chaos` runs too seldom.

Each distortion is put into a memory store, and the same small life is lived on it: work lost with its worker,
settled late, released, chained, limited. What happens must differ from what happens on a sound store.
"""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.system.mistakes import MISTAKES, Distortion, Rewrite
from windlass import INJECTED, App, Context, State, WorkerSettings, chain
from windlass._model.limit import Limit
from windlass._model.options import DeclaredType
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    LEASE,
    ManualWorker,
    complete,
    enqueue_one,
    exists,
    load,
    settle,
    some_tasks,
    worker_on,
)

DISTORTIONS = {name: one for name, one in MISTAKES.items() if not isinstance(one, Rewrite)}
REWRITES = {name: one for name, one in MISTAKES.items() if isinstance(one, Rewrite)}


@pytest.fixture(scope="module")
def sound() -> list[object]:
    return asyncio.run(live(lambda store: store))


@pytest.fixture
def limit_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Some distortions change what limits say to everybody."""
    with monkeypatch.context() as patch:
        for name in ("running", "rate", "capacity"):
            patch.setattr(Limit, name, getattr(Limit, name))
        yield


@pytest.mark.usefixtures("limit_restored")
@pytest.mark.parametrize("name", DISTORTIONS)
def test_a_distortion_has_an_effect(sound: list[object], name: str) -> None:
    mistaken = asyncio.run(live(DISTORTIONS[name]))

    assert mistaken != sound, (
        f"the mutant {name!r} behaves like the sound one: mend it in tests/system/mistakes.py"
    )


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_finds_its_statement(name: str) -> None:
    rewrite = REWRITES[name]

    assert rewrite.rewritten(), (
        f"the mutant {name!r} no longer applies: no statement of the {rewrite.store} store matches "
        f"{rewrite.old!r}; mend it in tests/system/mistakes.py"
    )


async def live(distort: Distortion) -> list[object]:
    """Return what happened in a small life on a store with this distortion."""
    clock = ManualClock()
    store = distort(MemoryStore(clock=clock))
    await store.open()
    return [
        await lose_a_worker(store, clock),
        await lose_a_claim(store),
        await stop_a_worker(store),
        await run_a_chain(store),
        await reach_limits(store, clock),
        await block_the_loop(store),
    ]


async def lose_a_worker(store: Store, clock: ManualClock) -> object:
    """A worker falls silent, its task is rescued and claimed by another, then it settles late."""
    silent = await worker_on(store, "silent")
    task_id = await enqueue_one(store, queue="lost", type="patient")
    await store.put(DeclaredType(name="patient", delays=(100.0,)))
    held = await silent.claim_one("lost")
    clock.advance(2 * LEASE)
    due_by_default = clock.now() + timedelta(seconds=10)
    await keep_until_rescued(store, task_id)
    rescued = await load(store, task_id)
    clock.advance(timedelta(hours=1))  # longer than any backoff
    await store.promote(10)
    other = await worker_on(store, "other")
    await other.claim_one("lost")
    return rescued.attempt, rescued.run_at > due_by_default, await settle(store, complete(held))


async def keep_until_rescued(store: Store, task_id: str) -> None:
    """Run a keeper until this task runs no more."""
    keeping = asyncio.create_task(App(store).keeper().run())
    async with asyncio.timeout(10):
        while (await load(store, task_id)).state is State.RUNNING:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.wait([keeping])


async def lose_a_claim(store: Store) -> object:
    """A worker does not hear of what it was granted; its next heartbeat tells."""
    worker = await worker_on(store, "unaware")
    task_id = await enqueue_one(store, queue="unheard")
    await worker.claim_one("unheard")
    await worker.beat(through=worker.claims)
    return (await load(store, task_id)).state


async def stop_a_worker(store: Store) -> object:
    """A worker stops in the middle of a task."""
    app = App(store)

    @app.task(name="stopped", queue="stopped")
    async def stopped(ctx: Context = INJECTED) -> None:
        worker.stop(at_once=True)
        await asyncio.Event().wait()

    worker = app.worker(WorkerSettings(queues=("stopped",), keeper=False))
    handle = await stopped.aenqueue()
    await worker.run()
    task = await load(store, handle.id)
    return task.state, task.attempt


async def run_a_chain(store: Store) -> object:
    app = App(store)

    @app.task(name="link", queue="chain")
    async def link() -> None: ...

    handle = await app.client.enqueue(chain(link.step(), link.step()))
    await app.worker(WorkerSettings(queues=("chain",), drain=True, keeper=False)).run()
    return await exists(store, handle.following[0])


async def reach_limits(store: Store, clock: ManualClock) -> object:
    """As many tasks as limits let start: at once, and after a while."""
    await store.put(Limit(name="cap", queue="capped", running=1))
    await store.put(Limit(name="rate", queue="rated", rate=1, burst=1))
    await store.enqueue(some_tasks(5, queue="capped") + some_tasks(5, queue="rated"))
    worker = await worker_on(store)
    capped, burst = await worker.claim(5, "capped"), await worker.claim(5, "rated")
    clock.advance(0.95)
    return len(capped), len(burst), len(await worker.claim(5, "rated"))


async def block_the_loop(store: Store) -> object:
    """Whether a heartbeat on another thread gets through while this event loop is blocked."""
    sent = threading.Event()

    async def beat() -> None:
        another = store.another()
        await ManualWorker(another, "blocked").beat(opening=True)
        sent.set()

    thread = threading.Thread(target=asyncio.run, args=(beat(),))
    thread.start()
    in_time = sent.wait(1.0)
    await asyncio.to_thread(thread.join)
    return in_time
