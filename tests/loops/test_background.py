"""A worker for the time of a block, beside other code on the same event loop: `async with app.worker():`."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.loops.workers import SOON, assert_nothing_held, eventually, settings, tasks
from windlass import App, State
from windlass.errors import LifespanFailed, StoreError


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_it_runs_tasks_until_the_block_ends_and_lets_them_finish(app: App) -> None:
    started = asyncio.Event()

    @app.task(name="slow")
    async def slow() -> str:
        started.set()
        await leaving.wait()
        return "finished"

    leaving = asyncio.Event()
    async with app, app.worker(settings(slots=1)) as worker:
        handle = await slow.aenqueue()
        await asyncio.wait_for(started.wait(), SOON)
        waiting = await slow.aenqueue()
        asyncio.get_running_loop().call_soon(leaving.set)

    assert worker.is_stopping
    assert await handle.result() == "finished"
    assert await waiting.state() is State.READY  # handed back, or never claimed
    await assert_nothing_held(app)


async def test_leaving_after_a_stop_lets_running_tasks_finish(app: App) -> None:
    started, leaving = asyncio.Event(), asyncio.Event()

    @app.task(name="slow")
    async def slow() -> str:
        started.set()
        await leaving.wait()
        return "finished"

    async with app.worker(settings(slots=1)) as worker:
        handle = await slow.aenqueue()
        await asyncio.wait_for(started.wait(), SOON)
        worker.stop()
        asyncio.get_running_loop().call_later(0.05, leaving.set)

    assert await handle.result() == "finished"


async def test_an_app_whose_opening_fails_is_closed(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/a.db")
    app.queue("q")
    closed: list[bool] = []

    async def fail(*_: object) -> None:
        raise ConnectionError("gone")

    async def close() -> None:
        closed.append(True)
        await closing()

    closing, app.store.close = app.store.close, close  # type: ignore[method-assign]
    app.publish = fail  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        async with app:
            pass

    assert closed


async def test_it_is_ready_when_the_block_begins_and_has_left_its_lifespan_after_it(app: App) -> None:
    seen: list[str] = []

    @app.lifespan
    async def lifespan(_: App) -> AsyncIterator[None]:
        seen.append("entered")
        yield
        seen.append("left")

    async with app.worker(settings()):
        assert seen == ["entered"]
    assert seen == ["entered", "left"]


async def test_a_start_that_fails_is_raised(app: App) -> None:
    @app.lifespan
    async def lifespan(_: App) -> AsyncIterator[None]:
        raise ConnectionError("no such host")
        yield

    with pytest.raises(LifespanFailed, match="no such host"):
        async with app.worker(settings()):
            pytest.fail("the block was entered")
    await assert_nothing_held(app)


async def test_a_start_that_is_cancelled_leaves_nothing(app: App) -> None:
    entered = asyncio.Event()

    @app.lifespan
    async def lifespan(_: App) -> AsyncIterator[None]:
        entered.set()
        await asyncio.Event().wait()
        yield

    start = asyncio.create_task(app.worker(settings()).__aenter__())
    await asyncio.wait_for(entered.wait(), SOON)
    start.cancel()

    with pytest.raises(asyncio.CancelledError):
        await start
    await assert_nothing_held(app)


async def test_a_failure_in_the_block_is_logged_at_once_and_raised_at_its_end(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    crash = asyncio.Event()

    async def consume() -> None:
        await crash.wait()
        raise ConnectionError("the connection was closed")

    @app.lifespan
    async def lifespan(_: App) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
            yield

    def critical() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == logging.CRITICAL]

    async def served() -> None:
        async with app.worker(settings()):
            crash.set()
            await eventually(critical)

    with pytest.raises(LifespanFailed):
        await served()
    assert critical() == ["worker alice has failed; this program runs no tasks any more"]


async def test_an_error_of_the_block_is_raised_as_it_is(app: App) -> None:
    with pytest.raises(KeyError, match="of the block"):
        async with app.worker(settings()):
            raise KeyError("of the block")
    await assert_nothing_held(app)


async def test_a_block_that_is_cancelled_stops_running_tasks_at_once(app: App) -> None:
    started = asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with app.worker(settings(grace=3600)):
            await asyncio.Event().wait()

    handle = await endless.aenqueue()
    serving = asyncio.create_task(serve())
    await asyncio.wait_for(started.wait(), SOON)
    serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, SOON)
    assert await handle.state() is State.READY
    assert [task.attempt for task in await tasks(app)] == [0]  # a release is not an attempt
    await assert_nothing_held(app)


async def test_a_stop_that_is_cancelled_stops_running_tasks_at_once(app: App) -> None:
    started = asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    worker = app.worker(settings(grace=3600))
    await worker.__aenter__()
    await endless.aenqueue()
    await asyncio.wait_for(started.wait(), SOON)
    leaving = asyncio.create_task(worker.__aexit__(None, None, None))
    await eventually(lambda: worker.is_stopping)
    leaving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(leaving, SOON)
    await assert_nothing_held(app)


async def test_an_app_that_cannot_be_opened_is_an_error_of_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError):
        async with App(f"sqlite:///{tmp_path}/file/windlass.db"):
            pytest.fail("the block was entered")
