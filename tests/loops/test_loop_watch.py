"""A handler that blocks the event loop is named in the log, and so is a blocking call on a running loop."""

import asyncio
import inspect
import logging
import re
import threading
import weakref
from pathlib import Path

import pytest

from tests.loops.workers import block, drained, eventually, hold_gil, pause, working
from windlass import App, Handle, State
from windlass._client import blocking_calls
from windlass._worker.watch import loop_watch


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "BLOCKED_AFTER", 0.1)
    monkeypatch.setattr(blocking_calls, "_warned", set())


def blocked(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "blocked the event loop" in one.getMessage()]


async def test_a_handler_that_blocks_is_named_with_the_line_that_does(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="shop.resize")
    async def resize() -> None:
        await pause(0.01)
        block(0.6)

    @app.task
    async def innocent() -> None:
        await pause(0.5)

    handles = [await innocent.aenqueue(), await resize.aenqueue(), await innocent.aenqueue()]
    await drained(app)

    [line] = blocked(caplog)
    record = next(one for one in caplog.records if one.getMessage() == line)
    assert (record.task_id, record.task_type) == (handles[1].id, "shop.resize")  # type: ignore[attr-defined]
    start = inspect.getsourcelines(resize.spec.handler)[1]
    assert line.startswith("the handler of shop.resize has blocked the event loop for 0.")
    assert f"{Path(__file__)}:{start + 3} in resize; " in line


@pytest.mark.parametrize("phase", range(5))
async def test_a_block_is_named_whenever_it_begins(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, phase: int
) -> None:
    monkeypatch.setattr(loop_watch, "BLOCKED_AFTER", 0.5)

    @app.task
    async def resize() -> None:
        await pause(0.1 * phase)
        block(0.6)

    async with working(app):
        await (await resize.aenqueue()).wait(timeout=5)

    assert len(blocked(caplog)) == 1


async def test_what_a_handler_had_in_hand_is_freed_after_it_was_named(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[weakref.ref[object]] = []

    class Picture:
        pass

    @app.task
    async def resize() -> None:
        picture = Picture()
        kept.append(weakref.ref(picture))
        block(1.0)

    async with working(app):
        await (await resize.aenqueue()).wait(timeout=5)
        assert len(blocked(caplog)) == 1
        assert kept[0]() is None


async def test_it_is_named_while_it_still_blocks_and_once_for_each_line(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    @app.task
    async def resize() -> None:
        for _ in range(3):
            block(0.35 if seen else 2.0)
            seen.append(len(blocked(caplog)))
            await pause(0)

    await resize.aenqueue()
    await drained(app)

    assert seen == [1, 1, 1]


async def test_handlers_that_do_not_block_are_never_named(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def patient() -> None:
        await pause(0.4)

    @app.task
    def in_thread() -> None:
        block(0.4)

    await patient.aenqueue()
    await in_thread.aenqueue()
    await drained(app)

    assert blocked(caplog) == []


async def test_what_blocks_the_loop_outside_of_handlers_is_named_too(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(app):
        block(0.5)
        await eventually(lambda: "has been blocked for" in caplog.text)

    assert "workers.py:" in caplog.text
    assert "in block\n" in caplog.text


# -- blocks that no thread could see -------------------------------------------------------------------


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch's thread gets no processor, as while a handler holds the GIL."""

    class BlindThread(threading.Thread):
        def run(self) -> None:
            if self.name != "windlass-loop-watch":
                super().run()

    monkeypatch.setattr(threading, "Thread", BlindThread)


def unseen(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if "the event loop did not run for" in one.getMessage()]


def seconds_in(text: str) -> float:
    found = re.search(r" for ([0-9.]+) s", text)
    assert found is not None
    return float(found[1])


@pytest.mark.usefixtures("blind")
async def test_a_block_that_nobody_saw_is_reported_when_it_is_over(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="shop.parse")
    async def parse() -> None:
        block(0.6)

    @app.task(name="shop.later")
    async def later() -> None: ...

    async with working(app, slots=1):
        first, second = await parse.aenqueue(), await later.aenqueue()
        await second.wait(timeout=5)
        await eventually(lambda: unseen(caplog))
        await pause(0.2)

    [record] = unseen(caplog)
    assert 0.6 <= seconds_in(record.getMessage()) < 5
    assert "a handler held Python's lock (the GIL) in C code, or the machine was ov" in record.getMessage()
    assert record.getMessage().endswith(f"; running then: shop.parse (task {first.id})")
    assert (record.task_id, record.task_type) == (first.id, "shop.parse")  # type: ignore[attr-defined]


@pytest.mark.usefixtures("blind")
async def test_of_many_tasks_that_ran_in_a_block_that_nobody_saw_a_few_are_named(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    release = asyncio.Event()

    @app.task(name="shop.patient")
    async def patient() -> None:
        await release.wait()

    async with working(app, slots=5):
        handles = [await patient.aenqueue() for _ in range(5)]
        for one in handles:
            await eventually(lambda one=one: _runs(one))  # type: ignore[misc]
        block(0.6)
        await eventually(lambda: unseen(caplog))
        release.set()

    text = unseen(caplog)[0].getMessage()
    assert text.count("shop.patient (task ") == 3
    assert text.endswith(", 2 other tasks")


async def _runs(handle: Handle[None]) -> bool:
    return (await handle.task()).state is State.RUNNING


async def test_a_handler_that_holds_the_gil_is_named_with_the_true_length_of_its_block(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watch, "BLOCKED_AFTER", 0.5)
    held: list[float] = []

    @app.task(name="shop.parse")
    async def parse() -> None:
        held.append(hold_gil(1.5))

    async with working(app):
        await (await parse.aenqueue()).wait(timeout=30)
        await eventually(lambda: "the event loop" in caplog.text)

    warned = [one.getMessage() for one in caplog.records if one.name == "windlass.worker"]
    named = [text for text in warned if "shop.parse" in text]
    assert len(named) == 1
    assert held[0] - 0.2 <= seconds_in(named[0]) < held[0] + 2


# -- blocking calls on a running loop ------------------------------------------------------------------


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name == "windlass.client"]


async def test_a_blocking_call_on_a_running_loop_is_named_once_for_each_place(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def quick(n: int) -> None: ...

    for n in range(3):
        handle = quick.enqueue(n)
    assert handle.state() == "ready"

    first, second = [one.getMessage() for one in warnings(caplog)]
    assert first.startswith("enqueue() blocks the event loop until the store has responded, at ")
    assert f"{Path(__file__)}:" in first
    assert "aenqueue" in first
    assert second.startswith("state() blocks")


async def test_a_blocking_call_in_a_thread_is_none_of_it(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    def quick(n: int) -> None: ...

    await asyncio.to_thread(quick.enqueue, 1)
    await quick.aenqueue(2)

    assert warnings(caplog) == []
