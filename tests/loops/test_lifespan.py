"""`@app.lifespan`: entered once in a worker process before it claims, left after the last task is settled."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.loops import child_tasks, hooked_tasks
from tests.loops.child_tasks import app as child_app
from tests.loops.hooked_log import lines
from tests.loops.workers import assert_nothing_held, drained, eventually, pause, settings, tasks, working
from windlass import App, Backoff, Context, InvalidOption, State
from windlass._stores.memory import MemoryStore
from windlass._worker import worker as worker_module
from windlass.errors import LifespanFailed

LATE = 10.0  # seconds: a deadline that a loaded machine keeps, too


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=0, jitter=0))


def crashing_lifespan(app: App) -> asyncio.Event:
    """Declare a lifespan that ends by itself once the event is set."""
    crash = asyncio.Event()

    async def consume() -> None:
        await crash.wait()
        raise ConnectionError("the connection was closed")

    @app.lifespan
    async def consuming(_: App) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
            yield

    return crash


async def test_lifespans_are_entered_in_order_and_left_in_reverse_around_all_work(app: App) -> None:
    seen: list[str] = []

    @app.lifespan
    async def outer(given: App) -> AsyncIterator[None]:
        assert given is app
        seen.append(f"enter outer, {len(await tasks(app, State.READY))} ready")
        yield
        seen.append(f"leave outer, {len(await tasks(app, State.COMPLETED))} completed")

    @app.lifespan
    async def inner(_: App) -> AsyncIterator[None]:
        seen.append("enter inner")
        yield
        seen.append("leave inner")

    @app.task
    async def work() -> None:
        seen.append("work")

    await work.aenqueue()
    await work.aenqueue()
    await drained(app)

    assert seen == [
        "enter outer, 2 ready", "enter inner", "work", "work", "leave inner", "leave outer, 2 completed",
    ]  # fmt: skip


async def test_what_a_lifespan_yields_is_the_state_of_every_handler_on_the_loop_it_was_made_in(
    app: App,
) -> None:
    class Pool:
        loop = asyncio.get_running_loop()

    made = Pool()

    @app.lifespan
    @asynccontextmanager
    async def pool(_: App) -> AsyncIterator[Pool]:
        yield made

    seen: list[Any] = []

    @app.task
    async def on_the_loop(ctx: Context[Pool]) -> None:
        assert ctx.state.loop is asyncio.get_running_loop()
        seen.append(ctx.state)

    @app.task
    def in_a_thread(ctx: Context[Pool]) -> None:
        seen.append(ctx.state)

    await on_the_loop.aenqueue()
    await in_a_thread.aenqueue()
    await drained(app)

    assert seen == [made, made]


async def test_without_a_lifespan_the_state_is_none(app: App) -> None:
    seen: list[Any] = []

    @app.task
    async def work(ctx: Context) -> None:
        seen.append(ctx.state)

    await work.aenqueue()
    await drained(app)

    assert seen == [None]


async def test_a_lifespan_that_fails_at_start_stops_the_worker_before_it_claims(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @app.lifespan
    async def first(_: App) -> AsyncIterator[None]:
        yield
        seen.append("leave first")

    @app.lifespan
    async def database(_: App) -> AsyncIterator[None]:
        raise ConnectionError("port 5432 is closed")
        yield

    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    with pytest.raises(
        LifespanFailed, match=r"database failed at start: ConnectionError: port 5432"
    ) as failed:
        await drained(app)

    [task] = await tasks(app)
    assert (task.state, task.attempt) == (State.READY, 0)
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert seen == ["leave first"]
    assert "in database" in caplog.text
    await assert_nothing_held(app)


async def test_a_lifespan_that_fails_at_its_end_is_named_in_the_log_and_loses_no_outcome(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @app.lifespan
    async def outer(_: App) -> AsyncIterator[None]:
        yield
        seen.append("leave outer")

    @app.lifespan
    async def broken(_: App) -> AsyncIterator[None]:
        yield
        raise ValueError("cannot close")

    @app.task
    async def work() -> str:
        return "done"

    await work.aenqueue()
    await drained(app)

    [task] = await tasks(app)
    assert (task.state, task.result) == (State.COMPLETED, b'"done"')
    assert seen == ["leave outer"]
    assert "broken failed at its end" in caplog.text
    await assert_nothing_held(app)


async def test_the_end_runs_after_the_last_handler_when_the_worker_is_stopped(app: App) -> None:
    seen: list[str] = []
    started = asyncio.Event()

    @app.lifespan
    async def pool(_: App) -> AsyncIterator[None]:
        yield
        [task] = await tasks(app)
        seen.append(f"leave, the task is {task.state}")

    @app.task
    async def work() -> None:
        started.set()
        try:
            await pause(60)
        finally:
            seen.append("the handler is cancelled")

    await work.aenqueue()
    async with working(app, grace=0.1):
        await asyncio.wait_for(started.wait(), LATE)

    assert seen == ["the handler is cancelled", "leave, the task is ready"]
    await assert_nothing_held(app)


async def test_an_end_that_hangs_is_cancelled_and_the_worker_stops(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "_LEAVE_TIMEOUT", 0.1)
    seen: list[str] = []

    @app.lifespan
    async def hanging(_: App) -> AsyncIterator[None]:
        yield
        try:
            await pause(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    await drained(app, grace=0)

    assert seen == ["cancelled"]
    assert "hanging took more than 0.1 s; cancelling it" in caplog.text
    assert (await tasks(app))[0].state is State.COMPLETED
    await assert_nothing_held(app)


async def test_the_second_stop_leaves_lifespans_less_time_than_the_grace(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_LEAVE_TIMEOUT", 0.1)
    standing = asyncio.Event()

    @app.lifespan
    async def hanging(_: App) -> AsyncIterator[None]:
        yield
        await pause(600)

    worker = app.worker(settings(grace=300))
    run = asyncio.create_task(worker.run(ready=standing.set))
    await asyncio.wait_for(standing.wait(), LATE)
    worker.stop()
    worker.stop()
    await asyncio.wait_for(run, LATE)
    await assert_nothing_held(app)


async def test_a_second_stop_cuts_the_ends_of_lifespans_off(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    standing, leaving = asyncio.Event(), asyncio.Event()

    @app.lifespan
    async def first(_: App) -> AsyncIterator[None]:
        yield
        seen.append("leave first")

    @app.lifespan
    async def hanging(_: App) -> AsyncIterator[None]:
        yield
        leaving.set()
        await pause(600)

    worker = app.worker(settings(grace=300))
    run = asyncio.create_task(worker.run(ready=standing.set))
    await asyncio.wait_for(standing.wait(), LATE)
    worker.stop()
    await asyncio.wait_for(leaving.wait(), LATE)
    assert not run.done()
    worker.stop()
    await asyncio.wait_for(run, LATE)

    assert "hanging was cut off by a second signal; cancelling it" in caplog.text
    assert seen == ["leave first"]  # the others are left all the same
    await assert_nothing_held(app)


async def test_stopping_a_worker_cancels_a_start_that_hangs(app: App) -> None:
    seen: list[str] = []
    entering = asyncio.Event()

    @app.lifespan
    async def first(_: App) -> AsyncIterator[None]:
        yield
        seen.append("leave first")

    @app.lifespan
    async def hanging(_: App) -> AsyncIterator[None]:
        entering.set()
        await pause(60)
        yield

    worker = app.worker(settings())
    run = asyncio.create_task(worker.run())
    await asyncio.wait_for(entering.wait(), LATE)
    worker.stop()
    await asyncio.wait_for(run, LATE)

    assert seen == ["leave first"]
    await assert_nothing_held(app)


async def test_a_lifespan_that_ends_by_itself_stops_the_worker_with_an_error(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    crash = crashing_lifespan(app)

    @app.task
    async def work() -> None:
        crash.set()

    await work.aenqueue()
    run = asyncio.create_task(app.worker(settings()).run())
    with pytest.raises(LifespanFailed, match="ended by itself"):
        await asyncio.wait_for(run, LATE)

    assert "consuming failed at its end" in caplog.text
    assert "the connection was closed" in caplog.text
    assert (await tasks(app))[0].state is State.COMPLETED
    await assert_nothing_held(app)


async def test_a_lifespan_that_ends_by_itself_while_another_is_entered_is_an_error(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    crash = crashing_lifespan(app)

    @app.lifespan
    async def slow(_: App) -> AsyncIterator[None]:
        crash.set()
        await pause(60)
        yield

    run = asyncio.create_task(app.worker(settings()).run())
    with pytest.raises(LifespanFailed, match="ended by itself"):
        await asyncio.wait_for(run, LATE)

    assert "the connection was closed" in caplog.text
    await assert_nothing_held(app)


async def test_a_lifespan_is_entered_and_left_in_one_asyncio_task(app: App) -> None:
    """Task groups and cancel scopes need that."""
    seen: list[Any] = []

    @app.lifespan
    async def pool(_: App) -> AsyncIterator[None]:
        seen.append(asyncio.current_task())
        yield
        seen.append(asyncio.current_task())

    await drained(app)

    assert len(seen) == 2
    assert seen[0] is seen[1]


async def test_two_lifespans_that_yield_a_state_are_refused(app: App) -> None:
    @app.lifespan
    async def one(_: App) -> AsyncIterator[str]:
        yield "one"

    @app.lifespan
    async def other(_: App) -> AsyncIterator[str]:
        yield "other"

    with pytest.raises(LifespanFailed, match=r"one and .*other both yield a state"):
        await drained(app)


def _plain_generator(app: App) -> Iterator[None]:
    yield


async def _coroutine(app: App) -> None: ...


async def _without_the_app() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("wrong", [_plain_generator, _coroutine, _without_the_app, "text"])
def test_what_cannot_be_a_lifespan_is_refused_when_it_is_declared(app: App, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="lifespan takes an async function of the app that yields once"):
        app.lifespan(wrong)


# -- child processes ---------------------------------------------------------------------------------


async def test_a_child_process_has_lifespans_of_its_own_once_for_all_its_tasks(log: Path) -> None:
    handles = [await hooked_tasks.in_main_thread.aenqueue() for _ in range(2)]
    same_loop = await hooked_tasks.on_its_loop.aenqueue()
    await drained(hooked_tasks.app, processes=1)

    pids = [await handle.result(timeout=LATE) for handle in handles]
    child = pids[0][0]
    assert pids == [[child, child]] * 2
    assert child != os.getpid()
    assert await same_loop.result(timeout=LATE) is True
    assert lines(log, child) == ["enter", *["before", "run", "after"] * 3, "leave"]
    assert lines(log, os.getpid()) == ["enter", "leave"]
    assert lines(log)[-1] == "leave"


@pytest.mark.full
async def test_the_start_in_a_child_does_not_count_for_the_timeout(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOKED_MODE", "slow")
    handle = await hooked_tasks.limited.aenqueue()
    await drained(hooked_tasks.app, processes=1)

    assert (await handle.wait(timeout=LATE)).state is State.COMPLETED


async def test_a_lifespan_that_fails_in_a_child_fails_the_attempt_and_says_so(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOKED_MODE", "fails")
    handle = await hooked_tasks.fail.aenqueue()
    await drained(hooked_tasks.app, processes=1)

    task = await handle.wait(timeout=LATE)
    assert task.error is not None
    assert task.error.type == "windlass.errors.LifespanFailed"
    assert "process_state failed at start: ConnectionError: no database" in task.error.message


async def test_a_child_that_is_killed_does_not_leave_its_lifespans(log: Path) -> None:
    handle = await hooked_tasks.hang.aenqueue()
    await drained(hooked_tasks.app, processes=1)

    task = await handle.wait(timeout=LATE)
    assert task.error is not None
    assert task.error.type == "TimedOut"
    await eventually(lambda: lines(log, os.getpid()) == ["enter", "leave"])
    assert lines(log).count("leave") == 1


async def test_a_second_stop_kills_a_child_that_is_still_leaving_its_lifespans(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOOKED_MODE", "lingers")
    handle = await hooked_tasks.in_main_thread.aenqueue()
    worker = hooked_tasks.app.worker(settings(grace=300, processes=1))
    run = asyncio.create_task(worker.run())
    child, _ = await handle.result(timeout=LATE)
    worker.stop()
    await eventually(lambda: "linger" in lines(log, child))
    worker.stop()
    await asyncio.wait_for(run, LATE)

    assert "killing 1 child process during the end of the lifespans" in caplog.text
    assert "leave" not in lines(log, child)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert lines(log, os.getpid()) == ["enter", "leave"]  # it has time of its own


async def test_lifespans_that_ended_by_themselves_in_a_child_are_started_again(log: Path) -> None:
    ended = await hooked_tasks.end_lifespan.aenqueue()
    handle = await hooked_tasks.in_main_thread.aenqueue()
    await drained(hooked_tasks.app, processes=1, slots=1)

    assert (await ended.wait(timeout=LATE)).state is State.COMPLETED
    child, same = await handle.result(timeout=LATE)
    assert child == same
    work = ["before", "after", "enter", "before", "run", "after", "leave"]
    assert lines(log, child) == ["enter", *work]


async def test_a_child_whose_program_has_no_lifespans_keeps_to_the_timeout() -> None:
    """As if the lifespan were declared where only the worker runs."""
    before = child_app.use_store(MemoryStore())

    @child_app.lifespan
    async def of_the_worker(_: App) -> AsyncIterator[None]:
        yield

    try:
        handle = await child_tasks.nap.using(timeout=0.3, max_attempts=1).aenqueue(60)
        await drained(child_app, processes=1)
        task = await handle.wait(timeout=LATE)
    finally:
        child_app.hooks._lifespans.clear()
        child_app.use_store(before)

    assert task.error is not None
    assert task.error.type == "TimedOut"
