"""`@app.on_error`: called with every failed attempt, wherever the handler ran; tracebacks in the log."""

import asyncio
import gc
import json
import logging
import threading
import traceback
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from tests.loops import child_tasks
from tests.loops.child_tasks import app as child_app
from tests.loops.workers import assert_nothing_held, drained, eventually, pause, settings, tasks, working
from windlass import App, Backoff, Fatal, InvalidOption, Retry, Snooze, State, Task
from windlass._stores.memory import MemoryStore
from windlass._worker import error_hooks
from windlass.logs import AttemptFailed, JsonFormatter

AT_ONCE = Backoff(base=0, jitter=0)


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=AT_ONCE)


@pytest.fixture
def child() -> Iterator[App]:
    """The app whose handlers run in child processes, on a store and with hooks of its own."""
    before = child_app.use_store(MemoryStore())
    yield child_app
    child_app.hooks.error_hooks.clear()
    child_app.use_store(before)


def collect(app: App) -> list[tuple[Task, BaseException]]:
    calls: list[tuple[Task, BaseException]] = []

    @app.on_error
    def report(task: Task, error: BaseException) -> None:
        calls.append((task, error))

    return calls


async def test_every_failed_attempt_is_reported_with_its_own_exception(app: App) -> None:
    calls = collect(app)

    @app.task(max_attempts=3)
    async def failing(n: int) -> None:
        raise ValueError(f"no {n}")

    @app.task(max_attempts=1)
    def in_thread() -> None:
        raise KeyError("thread")

    handle = await failing.aenqueue(7)
    await in_thread.aenqueue()
    await drained(app)

    of_loop = [(task, error) for task, error in calls if task.id == handle.id]
    assert [(task.attempt, type(error), str(error)) for task, error in of_loop] == [
        (n, ValueError, "no 7") for n in (1, 2, 3)
    ]
    assert all("in failing" in "".join(traceback.format_exception(error)) for _, error in of_loop)
    assert [repr(error) for task, error in calls if task.type == in_thread.name] == ["KeyError('thread')"]


@pytest.mark.parametrize("where", ["on the loop", "in a thread"])
async def test_an_exception_is_freed_with_its_task_without_the_garbage_collector(
    app: App, where: str
) -> None:
    """Its traceback holds what the handler had in hand, and workers seldom collect garbage."""
    kept: list[weakref.ref[Any]] = []

    class Picture:
        pass

    def fail() -> None:
        picture = Picture()
        kept.append(weakref.ref(picture))
        raise ValueError

    async def on_the_loop() -> None:
        fail()

    handler: Any = on_the_loop if where == "on the loop" else fail
    failing = app.task(name="failing", max_attempts=1)(handler)
    calls: list[str] = []
    app.on_error(lambda task, error: calls.append(task.id))
    gc.collect()
    gc.disable()
    try:
        async with working(app):
            await (await failing.aenqueue()).wait(timeout=5)
            await eventually(lambda: calls)
            await eventually(lambda: kept[0]() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("raised", "reported"), [(Snooze(60), 0), (Retry("busy", after=60), 1), (Fatal("hopeless"), 1)], ids=repr
)
async def test_only_failures_are_reported(app: App, raised: Exception, reported: int) -> None:
    calls = collect(app)

    @app.task
    async def steer() -> None:
        raise raised

    await steer.aenqueue()
    await drained(app)

    assert [error for _, error in calls] == [raised] * reported


async def test_a_timeout_is_reported_although_nothing_was_raised(app: App) -> None:
    calls = collect(app)

    @app.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await pause(30)

    await slow.aenqueue()
    await drained(app)

    [(_, error)] = calls
    assert isinstance(error, AttemptFailed)
    assert (type(error).__name__, str(error)) == ("TimedOut", "exceeded its timeout of 0.05 s")


async def test_an_exception_in_a_child_is_reported_by_a_faithful_stand_in(child: App) -> None:
    calls = collect(child)
    await child_tasks.fail.aenqueue(password="sesame-open")
    await drained(child)

    [(task, error)] = calls
    shown = "".join(traceback.format_exception(error))
    assert (task.type, isinstance(error, AttemptFailed)) == (child_tasks.fail.name, True)
    assert (type(error).__name__, str(error)) == ("ValueError", "cannot log in with [secret]")
    assert "in fail" in shown
    assert "sesame" not in shown


async def test_the_death_of_a_child_is_reported(child: App) -> None:
    calls = collect(child)
    await child_tasks.die.aenqueue(how="exit")
    await drained(child)

    [(_, error)] = calls
    assert (type(error).__name__, str(error)) == ("ProcessDied", "the child process exited with status 7")


async def test_a_hook_runs_in_the_context_of_its_attempt_and_off_the_loop(app: App) -> None:
    request: ContextVar[str] = ContextVar("request", default="")
    seen: list[tuple[str, bool]] = []

    @app.on_error
    def report(task: Task, error: BaseException) -> None:
        seen.append((request.get(), threading.current_thread() is threading.main_thread()))

    @app.task(max_attempts=1)
    async def failing() -> None:
        raise ValueError

    request.set("outside")
    await failing.aenqueue()
    await drained(app)

    assert seen == [("outside", False)]


async def test_a_hook_that_hangs_delays_no_settlement_and_loses_only_calls(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(error_hooks, "MAX_WAITING", 10)
    monkeypatch.setattr(error_hooks, "CLOSE_TIMEOUT", 0.1)
    release = threading.Event()
    app.on_error(lambda *_: release.wait(30))

    @app.task(max_attempts=1)
    async def failing(n: int) -> None:
        raise ValueError

    handles = await failing.aenqueue_many([{"n": n} for n in range(50)])
    try:
        async with working(app):
            ended = [await handle.wait(timeout=5) for handle in handles]
    finally:
        release.set()

    assert {task.state for task in ended} == {State.DEAD}
    assert "on_error is too slow: 10 calls wait" in caplog.text
    assert "on_error was not called for " in caplog.text
    await assert_nothing_held(app)


async def test_hooks_of_the_app_and_of_the_worker_are_both_called_and_one_that_raises_stops_no_other(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.on_error
    def broken(task: Task, error: BaseException) -> None:
        raise RuntimeError(str(error))

    calls = collect(app)
    own: list[Any] = []

    @app.task(max_attempts=1)
    async def failing(token: str) -> None:
        raise ValueError(token)

    await failing.aenqueue("canary")
    await asyncio.wait_for(app.worker(settings(drain=True), on_error=lambda *a: own.append(a)).run(), 10)

    assert (len(calls), len(own)) == (1, 1)
    assert "on_error raised" in caplog.text
    assert "canary" not in caplog.text


async def test_calls_that_wait_when_the_worker_stops_are_made(app: App) -> None:
    go_on, done = threading.Event(), []

    @app.on_error
    def slow(task: Task, error: BaseException) -> None:
        go_on.wait(5)
        done.append(task.id)

    @app.task(max_attempts=1)
    async def failing(n: int) -> None:
        raise ValueError

    await failing.aenqueue_many([{"n": n} for n in range(5)])
    run = asyncio.create_task(drained(app))
    await eventually(lambda: _dead(app, 5))
    go_on.set()
    await run

    assert len(done) == 5


async def _dead(app: App, number: int) -> bool:
    return len(await tasks(app, State.DEAD)) == number


async def _async_hook(task: Task, error: BaseException) -> None: ...


def _hook_of_one(error: BaseException) -> None: ...


@pytest.mark.parametrize("wrong", [_async_hook, _hook_of_one, "text"])
def test_what_cannot_be_a_hook_is_refused_at_its_declaration(app: App, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"a function of \(task, error\) that is not async"):
        app.on_error(wrong)


@pytest.mark.parametrize(
    "right", [lambda *given: None, lambda task, error, retries=0: None, print], ids=["any", "more", "builtin"]
)
def test_any_function_that_takes_a_task_and_an_error_is_a_hook(app: App, right: Any) -> None:
    assert app.on_error(right) is right


# -- tracebacks in the log ---------------------------------------------------------------------------


@pytest.mark.parametrize(("max_attempts", "event"), [(2, "retried"), (1, "buried")])
async def test_the_event_of_a_failure_carries_its_traceback_without_secrets(
    app: App, caplog: pytest.LogCaptureFixture, max_attempts: int, event: str
) -> None:
    caplog.set_level(logging.INFO, logger="windlass")

    @app.task(max_attempts=max_attempts)
    async def failing(password: str) -> None:
        raise ValueError(f"cannot log in with {password}")

    await failing.aenqueue("sesame-open")
    await drained(app)

    record = next(one for one in caplog.records if getattr(one, "event", "") == event)
    as_json = JsonFormatter().format(record)
    assert json.loads(as_json)["exception"] == record.exc_text
    for text in (logging.Formatter("%(message)s").format(record), as_json):
        assert "Traceback (most recent call last)" in text
        assert "in failing" in text
        assert "cannot log in with [secret]" in text
        assert "sesame" not in text


async def test_the_traceback_in_the_log_is_bounded(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(max_attempts=1)
    async def failing() -> None:
        raise ValueError("x" * 1_000_000)

    await failing.aenqueue()
    await drained(app)

    record = next(one for one in caplog.records if getattr(one, "event", "") == "buried")
    assert 10_000 < len(record.exc_text or "") <= 16_100
