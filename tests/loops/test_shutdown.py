"""Stopping a worker: it claims nothing more, lets tasks finish and hands back the rest."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator

import pytest

from tests.loops.workers import (
    SOON,
    assert_nothing_held,
    eventually,
    pause,
    settings,
    tasks,
    watched,
    working,
)
from windlass import App, Context, State, Worker


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """No asyncio task, thread or child process outlives a worker."""
    before, children = {*threading.enumerate()}, {*_children()}  # A test's own server may be among them.
    yield
    await eventually(lambda: _own_tasks() == [])
    await eventually(lambda: _threads_since(before) == [])
    assert {*_children()} <= children


def _own_tasks() -> list[str]:
    found = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return [repr(task) for task in found if "windlass" in repr(task.get_coro())]


def _threads_since(before: set[threading.Thread]) -> list[str]:
    return [t.name for t in threading.enumerate() if t not in before and t.name.startswith("windlass")]


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123 - not a file to speak of
        return [int(pid) for pid in file.read().split()]


async def stopped(run: "asyncio.Task[None]") -> None:
    await asyncio.wait_for(run, 8)


async def started(app: App, worker: Worker) -> "asyncio.Task[None]":
    standing = asyncio.Event()
    run = asyncio.create_task(worker.run(ready=standing.set))
    await asyncio.wait_for(standing.wait(), 5)
    return run


async def test_running_tasks_finish_within_their_grace_and_nothing_new_is_claimed(app: App) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    @app.task
    async def steady() -> str:
        entered.set()
        await gate.wait()
        return "done"

    handles = [await steady.aenqueue() for _ in range(3)]
    worker = app.worker(settings(slots=1))
    run = await started(app, worker)
    await asyncio.wait_for(entered.wait(), 5)
    worker.stop()
    late = await steady.aenqueue()
    await pause(0.05)
    gate.set()
    await stopped(run)

    assert await handles[0].result(timeout=1) == "done"
    assert [await handle.state() for handle in (*handles[1:], late)] == [State.READY] * 3
    assert worker.ran == 1
    await assert_nothing_held(app)


async def test_what_was_claimed_ahead_is_handed_back_uncounted(app: App) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    @app.task
    async def quick() -> None: ...

    @app.task
    async def slow() -> None:
        entered.set()
        await gate.wait()

    worker = app.worker(settings(slots=1, heartbeat=1.5))
    run = await started(app, worker)
    await quick.aenqueue_many([{} for _ in range(30)])
    await eventually(lambda: worker.ran == 30)
    handles = await app.client.enqueue_many([slow.step(), quick.step()])
    await asyncio.wait_for(entered.wait(), 5)
    assert (await handles[1].task()).attempt == 1
    worker.stop()
    task = await eventually(lambda: _ready(app))
    gate.set()
    await stopped(run)

    assert (task[0].id, task[0].attempt) == (handles[1].id, 0)
    assert await handles[0].state() is State.COMPLETED
    await assert_nothing_held(app)


async def _ready(app: App) -> list[object]:
    return await tasks(app, State.READY)


async def test_after_its_grace_an_async_task_is_cancelled_and_handed_back_uncounted(app: App) -> None:
    cleaned_up = asyncio.Event()

    @app.task(max_attempts=1)
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await pause(0.02)
            cleaned_up.set()

    handle = await endless.aenqueue()
    async with working(app, grace=0.05):
        await eventually(lambda: _running(app))

    task = await handle.task()
    assert (task.state, task.attempt, cleaned_up.is_set()) == (State.READY, 0, True)
    await assert_nothing_held(app)


async def test_a_thread_that_does_not_end_is_left_behind_and_its_task_handed_back(app: App) -> None:
    gate, entered = threading.Event(), threading.Event()

    @app.task(max_attempts=1)
    def deaf() -> str:
        entered.set()
        gate.wait(20)
        return "of a lease that is another's"

    handle = await deaf.aenqueue()
    worker = app.worker(settings(grace=0.05))
    run = await started(app, worker)
    await asyncio.to_thread(entered.wait, 5)
    worker.stop()
    await stopped(run)
    task = await handle.task()
    gate.set()

    assert (task.state, task.attempt) == (State.READY, 0)
    await pause(0.05)
    assert (await handle.task()).result is None
    await assert_nothing_held(app)


async def test_a_thread_that_listens_ends_at_the_end_of_its_grace(app: App) -> None:
    entered = threading.Event()

    @app.task(max_attempts=1)
    def polite(*, ctx: Context) -> None:
        entered.set()
        while True:
            ctx.check()
            threading.Event().wait(0.005)

    handle = await polite.aenqueue()  # type: ignore[call-arg]
    async with working(app, grace=0.05):
        await asyncio.to_thread(entered.wait, 5)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.READY, 0)


async def test_a_handler_that_swallows_every_cancellation_cannot_hold_up_the_stop(app: App) -> None:
    free = asyncio.Event()

    @app.task(max_attempts=1)
    async def stubborn() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    handle = await stubborn.aenqueue()
    worker = app.worker(settings(grace=0.05))
    run = await started(app, worker)
    await eventually(lambda: _running(app))
    worker.stop()
    await stopped(run)
    task = await handle.task()
    free.set()

    assert (task.state, task.attempt) == (State.READY, 0)
    await assert_nothing_held(app)


async def test_a_second_stop_does_not_wait_for_the_grace(app: App) -> None:
    entered = asyncio.Event()

    @app.task
    async def endless() -> None:
        entered.set()
        await asyncio.Event().wait()

    handle = await endless.aenqueue()
    worker = app.worker(settings(grace=60))
    run = await started(app, worker)
    await asyncio.wait_for(entered.wait(), 5)
    worker.stop()
    await pause(0.05)
    assert not run.done()
    worker.stop()
    await asyncio.wait_for(run, SOON)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.READY, 0)


async def test_stopping_at_once_does_not_wait_either(app: App) -> None:
    @app.task
    async def endless() -> None:
        await asyncio.Event().wait()

    await endless.aenqueue()
    worker = app.worker(settings(grace=60))
    run = await started(app, worker)
    await eventually(lambda: _running(app))
    worker.stop(at_once=True)
    await asyncio.wait_for(run, SOON)

    await assert_nothing_held(app)


async def test_a_worker_told_to_stop_before_it_began_does_nothing(app: App) -> None:
    @app.task
    async def quick() -> None: ...

    handle = await quick.aenqueue()
    worker = app.worker(settings())
    worker.stop()
    await asyncio.wait_for(worker.run(), SOON)

    assert (await handle.state(), worker.ran) == (State.READY, 0)
    await assert_nothing_held(app)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_it_once_gently_twice_at_once(app: App, number: signal.Signals) -> None:
    entered = asyncio.Event()

    @app.task
    async def endless() -> None:
        entered.set()
        await asyncio.Event().wait()

    handle = await endless.aenqueue()
    run = asyncio.create_task(app.worker(settings(grace=60)).run(signals=True))
    await asyncio.wait_for(entered.wait(), 5)
    os.kill(os.getpid(), number)
    await pause(0.05)
    assert not run.done()
    os.kill(os.getpid(), number)
    await asyncio.wait_for(run, SOON)

    assert await handle.state() is State.READY


async def test_a_signal_stops_a_worker_that_still_waits_for_its_store() -> None:
    app, watch = watched()
    watch.down.add("heartbeat")
    run = asyncio.create_task(app.worker(settings()).run(signals=True))
    await eventually(lambda: watch.calls["heartbeat"] >= 2)
    os.kill(os.getpid(), signal.SIGTERM)

    await asyncio.wait_for(run, SOON)


async def test_a_cancelled_worker_leaves_its_tasks_to_be_rescued(app: App) -> None:
    @app.task
    async def endless() -> None:
        await asyncio.Event().wait()

    handle = await endless.aenqueue()
    run = await started(app, app.worker(settings()))
    await eventually(lambda: _running(app))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await handle.state() is State.RUNNING

    async with working(app, queues=("nothing",), keeper=True):
        await eventually(lambda: _attempts(app, handle.id))
    await assert_nothing_held(app)


async def _attempts(app: App, task_id: str) -> object:
    return await app.operator.attempts(task_id)


async def test_every_task_is_accounted_for_after_stopping_under_load(app: App) -> None:
    started_runs = 0

    @app.task
    async def mixed(n: int) -> int:
        nonlocal started_runs
        started_runs += 1
        await pause(0.001 * (n % 5))
        return n

    handles = await mixed.aenqueue_many([{"n": n} for n in range(400)])
    while len(await tasks(app, State.COMPLETED)) < 400:
        before = started_runs
        async with working(app, slots=8):
            await eventually(lambda before=before: started_runs >= min(before + 60, 400))  # type: ignore[misc]
        await assert_nothing_held(app)

    assert started_runs == 400
    assert {(await handle.task()).attempt for handle in handles} == {1}


async def _running(app: App) -> bool:
    return bool(await tasks(app, State.RUNNING))
