"""Timeouts: what runs too long is interrupted if possible, otherwise asked to stop."""

import asyncio
import threading
from datetime import timedelta

import pytest

from tests.loops.workers import assert_nothing_held, block, drained, eventually, pause, tasks, working
from windlass import App, Context, State


@pytest.fixture
def app() -> App:
    return App("memory://")


def at_once(_attempt: int, _draw: float) -> timedelta:
    return timedelta(0)


async def test_an_async_handler_is_cancelled_at_its_timeout_and_tried_again(app: App) -> None:
    attempts: list[int] = []

    @app.task(timeout=0.05, backoff=at_once, max_attempts=3)
    async def slow(*, ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            await asyncio.Event().wait()
        return "at last"

    handle = await slow.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert await handle.result(timeout=1) == "at last"
    assert attempts == [1, 2, 3]
    lines = await app.operator.attempts(handle.id)
    assert [line.outcome for line in lines] == ["timedout", "timedout", "returned"]


async def test_a_task_that_always_times_out_dies_of_it(app: App) -> None:
    @app.task(timeout=0.02, backoff=at_once, max_attempts=2)
    async def slow() -> None:
        await asyncio.Event().wait()

    handle = await slow.aenqueue()
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.DEAD, 2)
    assert task.error is not None
    assert (task.error.type, task.error.message) == ("TimedOut", "exceeded its timeout of 0.02 s")


async def test_a_handler_that_catches_its_cancellation_and_returns_is_accepted(app: App) -> None:
    @app.task(timeout=0.02, max_attempts=1)
    async def graceful() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "half of it"
        return "all of it"

    handle = await graceful.aenqueue()
    await drained(app)

    assert await handle.result(timeout=1) == "half of it"


async def test_a_handler_that_turns_its_cancellation_into_an_error_has_failed_with_it(app: App) -> None:
    @app.task(timeout=0.02, max_attempts=1)
    async def rude() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("how dare you") from None

    handle = await rude.aenqueue()
    await drained(app)

    error = (await handle.task()).error
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "how dare you")


async def test_a_handler_that_ignores_its_cancellation_is_cancelled_once_more(app: App) -> None:
    cancelled = 0

    @app.task(timeout=0.02, max_attempts=1)
    async def stubborn() -> None:
        nonlocal cancelled
        while cancelled < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1

    handle = await stubborn.aenqueue()
    await drained(app)

    assert cancelled == 2
    assert await handle.state() is State.COMPLETED


async def test_the_timeout_that_was_asked_for_beats_the_declared_one(app: App) -> None:
    @app.task(timeout=30, max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    handle = await slow.using(timeout=0.02).aenqueue()
    await drained(app)

    assert await handle.state() is State.DEAD


async def test_timeouts_inside_a_handler_are_its_own(app: App) -> None:
    @app.task(timeout=5, max_attempts=1)
    async def careful() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up by itself"
        return "never"

    handles = [await careful.aenqueue() for _ in range(5)]
    await drained(app, slots=1)

    assert [await handle.result(timeout=1) for handle in handles] == ["gave up by itself"] * 5


async def test_a_cancellation_that_comes_as_the_handler_ends_never_hits_the_next_task(app: App) -> None:
    """Handlers that end at about the moment of their timeout, each followed by a witness."""
    innocent = 0

    @app.task(timeout=0.002, backoff=at_once, max_attempts=1)
    async def brink(n: int) -> None:
        await pause((n % 20) * 0.00015)  # from nothing, which is in time on a busy machine too, to 2.85 ms

    @app.task(max_attempts=1)
    async def witness() -> None:
        nonlocal innocent
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        innocent += 1

    for n in range(1500):
        await app.client.enqueue_many([brink.step(n), witness.step()])
    await drained(app, slots=8)

    ended = await app.operator.count(by=())
    outcomes = {task.id: task for task in [t async for t in app.operator.every()]}
    dead_witnesses = [
        t for t in outcomes.values() if t.type == witness.name and t.state is not State.COMPLETED
    ]
    assert ended[0].number == 3000
    assert dead_witnesses == []
    assert innocent == 1500
    assert {t.state for t in outcomes.values() if t.type == brink.name} == {State.COMPLETED, State.DEAD}
    await assert_nothing_held(app)


async def test_a_thread_is_asked_and_keeps_its_slot_until_it_returns(app: App) -> None:
    gate, asked = threading.Event(), threading.Event()
    order: list[str] = []

    @app.task(timeout=0.03, max_attempts=1)
    def deaf(*, ctx: Context) -> str:
        while not ctx.stopping:
            block(0.005)
        asked.set()
        gate.wait(5)
        order.append("deaf")
        return "late"

    @app.task
    async def following() -> None:
        order.append("following")

    handle = await deaf.aenqueue()  # type: ignore[call-arg]
    after = await following.aenqueue()
    async with working(app, slots=1):
        assert await asyncio.to_thread(asked.wait, 5)
        await pause(0.05)
        assert await handle.state() is State.RUNNING
        gate.set()
        await after.wait(timeout=5)

    assert order == ["deaf", "following"]
    assert await handle.result(timeout=1) == "late"


async def test_check_ends_a_thread_that_is_out_of_time(app: App) -> None:
    @app.task(timeout=0.03, max_attempts=1)
    def polite(*, ctx: Context) -> None:
        while True:
            ctx.check()
            block(0.005)

    handle = await polite.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    error = (await handle.task()).error
    assert error is not None
    assert error.type == "TimedOut"


async def test_check_does_nothing_while_all_is_well(app: App) -> None:
    @app.task
    def calm(*, ctx: Context) -> bool:
        ctx.check()
        return ctx.stopping

    handle = await calm.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert await handle.result(timeout=1) is False


async def test_one_sweeper_watches_many_deadlines(app: App) -> None:
    @app.task(max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    for n in range(40):
        await slow.using(timeout=0.02 + 0.01 * ((n * 7) % 20)).aenqueue()
    async with working(app, slots=40):
        await eventually(lambda: _dead(app, 40))

    durations = [task.duration - task.timeout.total_seconds() for task in await tasks(app)]
    assert min(durations) >= 0
    assert max(durations) < 2


async def _dead(app: App, number: int) -> bool:
    return len(await tasks(app, State.DEAD)) == number
