"""A slot survives everything a handler does, and records a bounded, clean error."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from tests.examples import FULL
from tests.loops.workers import assert_nothing_held, drained, pause, settings, tasks, working
from windlass import App, Filter, State
from windlass._model.filter import By
from windlass._worker import runner


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Treacherous(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Nameless(Exception):
    __module__ = None  # type: ignore[assignment]


class Rootless(BaseException):
    pass


def forever(n: int = 0) -> int:
    return forever(n + 1) + 1


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def handler() -> NoReturn:
        raise error

    return handler


MISDEEDS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "an ordinary error": (raising(ValueError("of old")), "ValueError", "of old"),
    "a BaseException": (raising(Rootless("no roots")), "Rootless", "no roots"),
    "SystemExit": (raising(SystemExit(2)), "SystemExit", "2"),
    "KeyboardInterrupt": (raising(KeyboardInterrupt()), "KeyboardInterrupt", ""),
    "GeneratorExit": (raising(GeneratorExit()), "GeneratorExit", ""),
    "StopIteration": (raising(StopIteration(1)), "RuntimeError", "StopIteration"),
    "StopAsyncIteration": (raising(StopAsyncIteration()), "StopAsyncIteration", ""),
    "its own CancelledError": (raising(asyncio.CancelledError()), "RuntimeError", "cancelled itself"),
    "an error without words": (raising(Mute()), "Mute", "cannot be read: str() raised RuntimeError"),
    "an error that exits when asked": (
        raising(Treacherous()),
        "Treacherous",
        "cannot be read: str() raised SystemExit",
    ),
    "an error from nowhere": (raising(Nameless("lost")), "Nameless", "lost"),
    "endless recursion": (forever, "RecursionError", "recursion"),
    "several errors": (
        raising(ExceptionGroup("two", [ValueError("a"), KeyError("b")])),
        "ExceptionGroup",
        "two (2 sub-exceptions)",
    ),
    "NUL and lone surrogates": (raising(ValueError("a\0b\ud800c")), "ValueError", "a\ufffdb\\ud800c"),
}


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.mark.parametrize("blocking", [False, True], ids=["in the loop", "in a thread"])
@pytest.mark.parametrize("misdeed", MISDEEDS)
async def test_a_slot_survives(app: App, misdeed: str, blocking: bool) -> None:
    act, type_name, message = MISDEEDS[misdeed]

    @app.task(name="bad", max_attempts=1)
    async def bad() -> None:
        act()

    @app.task(name="bad.thread", max_attempts=1)
    def bad_in_thread() -> None:
        act()

    @app.task
    async def good() -> int:
        return 1

    failing = await (bad_in_thread if blocking else bad).aenqueue()
    following = await good.aenqueue()
    await drained(app, slots=1)

    task = await failing.task()
    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert task.error.type.endswith(type_name)
    assert message in task.error.message
    assert await following.result(timeout=1) == 1
    await assert_nothing_held(app)


@pytest.mark.more
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_message_of_megabytes_is_kept_short_and_clean(app: App, blocking: bool) -> None:
    size = 50_000_000 if FULL else 5_000_000

    def act() -> NoReturn:
        raise ValueError("x\0\ud800" * (size // 3))

    @app.task(max_attempts=1)
    async def in_loop() -> None:
        act()

    @app.task(max_attempts=1)
    def in_thread() -> None:
        act()

    handle = await (in_thread if blocking else in_loop).aenqueue()
    await drained(app)

    error = (await handle.task()).error
    assert error is not None
    assert error.traceback is not None
    assert len(error.message) <= 2_100
    assert len(error.traceback) <= 16_100
    assert "characters left out" in error.message
    assert "\0" not in error.message + error.traceback
    (error.message + error.traceback).encode()


async def test_a_handler_that_cancels_its_own_task_fails_and_its_slot_goes_on(app: App) -> None:
    @app.task(max_attempts=1)
    async def suicide() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(0)

    @app.task
    async def good() -> int:
        return 1

    failing = await suicide.aenqueue()
    following = await good.aenqueue()
    await drained(app, slots=1)

    task = await failing.task()
    assert task.state is State.DEAD
    assert task.error is not None
    assert "cancelled itself" in task.error.message
    assert await following.result(timeout=1) == 1


async def test_a_cancellation_left_behind_does_not_hit_the_next_task(app: App) -> None:
    @app.task
    async def leave_it_behind() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()

    @app.task
    async def good() -> int:
        await asyncio.sleep(0)
        return 1

    first = await leave_it_behind.aenqueue()
    following = await good.aenqueue()
    await drained(app, slots=1)

    assert await first.state() is State.COMPLETED
    assert await following.result(timeout=1) == 1
    assert [task.attempt for task in await tasks(app)] == [1, 1]


async def test_a_cancellation_of_an_idle_slot_by_a_handler_of_old_does_not_end_the_worker(app: App) -> None:
    slots: list[asyncio.Task[Any]] = []

    @app.task
    async def remember() -> None:
        current = asyncio.current_task()
        assert current is not None
        slots.append(current)

    async with working(app, slots=1):
        await (await remember.aenqueue()).result(timeout=5)
        await pause(0.02)
        slots[0].cancel()
        await pause(0.02)
        handle = await remember.aenqueue()

        await handle.result(timeout=5)


async def test_a_stray_cancellation_decides_nothing_while_a_thread_runs(app: App) -> None:
    gate, entered = threading.Event(), threading.Event()
    slots: list[asyncio.Task[Any]] = []

    @app.task
    async def remember() -> None:
        current = asyncio.current_task()
        assert current is not None
        slots.append(current)

    @app.task(max_attempts=1)
    def slow() -> str:
        entered.set()
        gate.wait(5)
        return "done"

    async with working(app, slots=1):
        await (await remember.aenqueue()).result(timeout=5)
        handle = await slow.aenqueue()
        await asyncio.to_thread(entered.wait, 5)
        slots[0].cancel()
        await pause(0.02)

        assert await handle.state() is State.RUNNING
        gate.set()
        assert await handle.result(timeout=5) == "done"


async def test_a_payload_broken_by_an_edit_kills_its_task_and_no_slot(app: App) -> None:
    @app.task(max_attempts=1)
    async def picky(n: int) -> int:
        if n == 0:
            raise ValueError
        return n

    handle = await picky.aenqueue(0)
    await drained(app)
    with pytest.raises(Exception, match="not JSON"):
        await app.operator.replay(Filter(ids=(handle.id,)), by=By(who="ann"), payload=b"{broken")

    assert await handle.state() is State.DEAD


async def test_tasks_go_on_at_the_full_number_of_slots_after_a_thousand_misdeeds(app: App) -> None:
    most = running = 0

    @app.task(max_attempts=1)
    async def bad(n: int) -> None:
        if n % 3 == 0:
            raise asyncio.CancelledError
        if n % 3 == 1:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asyncio.sleep(0)
        sys.exit(n)

    @app.task
    async def good() -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await pause(0.01)
        running -= 1

    await bad.aenqueue_many([{"n": n} for n in range(1000)])
    await good.aenqueue_many([{} for _ in range(20)])
    await drained(app, slots=4)

    assert len(await tasks(app, State.COMPLETED)) == 20
    assert most == 4


@pytest.mark.parametrize("problem", [ZeroDivisionError("oh"), SystemExit(1)], ids=repr)
async def test_an_on_error_that_raises_costs_neither_task_nor_slot(
    app: App, problem: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def on_error(_task: Any, _error: BaseException) -> None:
        raise problem

    @app.task(max_attempts=1)
    async def bad(password: str) -> None:
        raise ValueError(password)

    handles = [await bad.aenqueue("canary") for _ in range(3)]
    await asyncio.wait_for(app.worker(settings(drain=True, slots=1), on_error=on_error).run(), 10)

    assert [(await handle.task()).state for handle in handles] == [State.DEAD] * 3
    assert "on_error raised" in caplog.text
    assert "canary" not in caplog.text
    await assert_nothing_held(app)


async def test_a_bug_in_the_worker_itself_is_a_failure_like_any_other(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> NoReturn:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(runner, "outcome_of_error", broken)

    @app.task(max_attempts=1)
    async def bad() -> None:
        raise ValueError

    handles = [await bad.aenqueue() for _ in range(3)]
    await drained(app, slots=1)

    for handle in handles:
        task = await handle.task()
        assert task.state is State.DEAD
        assert task.error is not None
        assert task.error.type == "ZeroDivisionError"
