"""Cancellation: a task that has not started never starts, one that runs is stopped, and an end is final."""

import asyncio
import threading
from itertools import pairwise

import pytest

from tests.loops.workers import (
    SOON,
    assert_nothing_held,
    block,
    drained,
    eventually,
    pause,
    tasks,
    watched,
    working,
)
from windlass import App, Context, Filter, Retry, State, TaskCancelled, TaskFinished
from windlass._model.filter import By
from windlass.testing.faults import Hold


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_a_cancelled_ready_task_never_starts(app: App) -> None:
    ran: list[int] = []

    @app.task
    async def note(n: int) -> None:
        ran.append(n)

    handles = [await note.aenqueue(n) for n in range(3)]
    await handles[1].cancel(by="ann", why="wrong number")
    await drained(app)

    assert ran == [0, 2]
    with pytest.raises(TaskCancelled, match="wrong number"):
        await handles[1].result(timeout=1)


async def test_a_running_async_task_is_cancelled_within_a_heartbeat_or_so(app: App) -> None:
    entered, cleaned_up = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()

    async with working(app, heartbeat=0.05, lease=60):
        handle = await endless.aenqueue()
        await asyncio.wait_for(entered.wait(), SOON)
        await handle.cancel()
        task = await handle.wait(timeout=SOON)

        assert task.state is State.CANCELLED
        assert cleaned_up.is_set()
    lines = await app.operator.attempts(handle.id)
    assert [line.outcome for line in lines] == ["stopped"]


async def test_a_thread_is_asked_to_stop_and_ends_cancelled_when_it_does(app: App) -> None:
    entered = threading.Event()

    @app.task
    def endless(*, ctx: Context) -> None:
        entered.set()
        while True:
            ctx.check()
            block(0.005)

    async with working(app):
        handle = await endless.aenqueue()  # type: ignore[call-arg]
        await asyncio.to_thread(entered.wait, 5)
        await handle.cancel()

        assert (await handle.wait(timeout=5)).state is State.CANCELLED


async def test_a_handler_that_finishes_in_spite_of_being_asked_to_stop_has_completed(app: App) -> None:
    entered = asyncio.Event()

    @app.task
    async def determined() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done anyway"
        return "never"

    async with working(app):
        handle = await determined.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        await handle.cancel()

        assert await handle.result(timeout=5) == "done anyway"


@pytest.mark.parametrize("error", [ValueError("no"), Retry(after=60)])
async def test_a_task_that_fails_after_being_asked_to_stop_is_cancelled_and_not_retried(
    app: App, error: Exception
) -> None:
    entered = asyncio.Event()

    @app.task(max_attempts=5)
    async def failing() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise error from None

    async with working(app):
        handle = await failing.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        await handle.cancel()
        task = await handle.wait(timeout=5)

    assert (task.state, task.attempt) == (State.CANCELLED, 1)
    assert task.error is not None
    assert task.error.message == str(error)


async def test_a_task_claimed_ahead_is_cancelled_before_it_starts(app: App) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @app.task
    async def quick(name: str) -> None:
        ran.append(name)

    @app.task
    async def slow() -> None:
        entered.set()
        await gate.wait()

    async with working(app, slots=1, heartbeat=0.3, lease=2) as worker:
        for n in range(30):
            await quick.aenqueue(str(n))
        await eventually(lambda: worker.ran == 30)  # now it claims ahead
        handles = await app.client.enqueue_many([slow.step(), quick.step("victim")])
        await asyncio.wait_for(entered.wait(), 5)
        assert await handles[1].state() is State.RUNNING
        await handles[1].cancel()
        await pause(0.35)
        gate.set()
        await handles[0].wait(timeout=5)

        assert (await handles[1].wait(timeout=5)).state is State.CANCELLED
    assert "victim" not in ran


async def test_cancelling_a_task_that_has_ended_is_refused(app: App) -> None:
    @app.task
    async def done() -> None: ...

    handle = await done.aenqueue()
    await drained(app)

    with pytest.raises(TaskFinished, match="has already ended: it is completed"):
        await handle.cancel()
    assert await handle.state() is State.COMPLETED


async def test_a_cancellation_racing_with_completion_ends_in_exactly_one_of_them(app: App) -> None:
    @app.task
    async def short(n: int) -> int:
        await pause(0.001 * (n % 7))
        return n

    handles = [await short.aenqueue(n) for n in range(300)]

    async def cancel_some() -> int:
        refused = 0
        for n, handle in enumerate(handles):
            try:
                await handle.cancel()
            except TaskFinished:
                refused += 1
            if n % 3 == 0:
                await pause(0.002)
        return refused

    async with working(app, slots=8, heartbeat=0.01):
        refused = await cancel_some()
        ended = [await handle.wait(timeout=10) for handle in handles]

    states = [task.state for task in ended]
    assert set(states) <= {State.COMPLETED, State.CANCELLED}
    assert states.count(State.COMPLETED) >= refused
    for task in ended:
        lines = await app.operator.attempts(task.id)
        finals = [line.outcome for line in lines if line.outcome in {"returned", "stopped"}]
        assert len(finals) <= 1
        assert (task.result is not None) is (task.state is State.COMPLETED)
    await assert_nothing_held(app)


async def test_a_task_flagged_while_its_failure_is_on_its_way_is_cancelled() -> None:
    app, watch = watched()
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task(max_attempts=5)
    async def failing() -> None:
        entered.set()
        await gate.wait()
        raise ValueError("too late to hear of it")

    hold = Hold()
    async with working(app, heartbeat=1, lease=5):
        handle = await failing.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        watch.then("settle", hold)
        gate.set()
        await asyncio.wait_for(hold.reached(), 5)
        await handle.cancel()
        hold.let_go()

        assert (await handle.wait(timeout=5)).state is State.CANCELLED


async def test_cancelling_by_filter_reaches_pending_and_running_tasks(app: App) -> None:
    entered = asyncio.Event()

    @app.task
    async def endless(n: int) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with working(app, slots=1):
        await endless.aenqueue_many([{"n": n} for n in range(5)])
        await endless.using(delay=60).aenqueue(n=6)
        await asyncio.wait_for(entered.wait(), 5)
        number = await app.operator.cancel(Filter(types=(endless.name,)), by=By(who="ann", why="a mistake"))

        assert number == 6
        await eventually(lambda: _cancelled(app, 6))


async def test_repeated_heartbeats_do_not_interrupt_a_handler_that_cleans_up(app: App) -> None:
    entered = asyncio.Event()
    cleaned_up = False

    @app.task(timeout=30)
    async def tidy() -> None:
        nonlocal cleaned_up
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await pause(0.3)
            cleaned_up = True

    async with working(app, heartbeat=0.02):
        handle = await tidy.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        await handle.cancel()

        assert (await handle.wait(timeout=5)).state is State.CANCELLED
    assert cleaned_up


async def test_a_handler_that_ignores_its_cancellation_is_cancelled_once_more(app: App) -> None:
    entered = asyncio.Event()
    cancelled: list[float] = []

    @app.task
    async def stubborn() -> None:
        entered.set()
        while len(cancelled) < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(asyncio.get_running_loop().time())
        raise asyncio.CancelledError

    async with working(app, heartbeat=0.02):
        handle = await stubborn.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        await handle.cancel()

        assert (await handle.wait(timeout=5)).state is State.CANCELLED
    assert all(later - sooner > 0.4 for sooner, later in pairwise(cancelled))


async def _cancelled(app: App, number: int) -> bool:
    return len(await tasks(app, State.CANCELLED)) == number


@pytest.mark.parametrize("threaded", [True, False])
async def test_a_handler_sees_who_asked_it_to_stop_and_its_error_says_so(app: App, *, threaded: bool) -> None:
    entered = threading.Event()
    seen: list[tuple[str | None, str | None]] = []

    @app.task
    def in_thread(*, ctx: Context) -> None:
        seen.append((ctx.cancelled_by, ctx.cancel_reason))
        entered.set()
        while not ctx.stopping:
            block(0.01)
        seen.append((ctx.cancelled_by, ctx.cancel_reason))
        ctx.check()

    @app.task
    async def in_loop(*, ctx: Context) -> None:
        seen.append((ctx.cancelled_by, ctx.cancel_reason))
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append((ctx.cancelled_by, ctx.cancel_reason))

    async with working(app, heartbeat=0.05):
        handle = await (in_thread if threaded else in_loop).aenqueue()
        await eventually(entered.is_set)
        await handle.cancel(by="ann", why="wrong list")
        with pytest.raises(TaskCancelled, match="cancelled by ann: wrong list"):
            await handle.result(timeout=5)

    assert seen == [(None, None), ("ann", "wrong list")]
    task = await handle.task()
    assert (task.cancelled_by, task.cancel_reason) == ("ann", "wrong list")
