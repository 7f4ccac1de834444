"""Handlers that run on after their timeout are named with their stack, listed, and replaced if asked."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.loops.workers import (
    assert_nothing_held,
    block,
    eventually,
    hold_gil,
    pause,
    sessions,
    settings,
    tasks,
    working,
)
from windlass import INJECTED, App, Backoff, Context, Handle, InvalidOption, State
from windlass._model.record import StuckHandler
from windlass._observe.events import Event, EventName
from windlass._observe.logs import JsonFormatter
from windlass._worker.watch import loop_watch, stuck

TIMEOUT = 0.1


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=60, jitter=0))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "BLOCKED_AFTER", 0.1)
    monkeypatch.setattr(stuck, "STUCK_AFTER", 0.2)


class Events:
    """A sink that keeps what it is sent."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def wants(self, _: EventName) -> bool:
        return True

    def take(self, event: Event) -> None:
        self.all.append(event)

    def took(self, verb: str, seconds: float) -> None: ...

    def failed(self, verb: str, code: str) -> None: ...

    def batch(self, size: int) -> None: ...

    def of(self, name: EventName, task_id: str) -> int:
        return sum(one.name is name and one.task_id == task_id for one in self.all)


def named(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if "after its timeout of" in one.getMessage()]


async def first_named(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    await eventually(lambda: named(caplog))
    return named(caplog)[0]


async def listed(app: App, *replaced: bool) -> list[StuckHandler]:
    """The stuck handlers that the only worker lists, once so many are replaced or not."""
    handlers: list[StuckHandler] = []

    async def are_found() -> Any:
        handlers[:] = [one for session in await sessions(app) for one in session.worker.stuck]
        return sorted(one.replaced for one in handlers) == [*replaced]

    await eventually(are_found)
    return handlers


@asynccontextmanager
async def holding(release: threading.Event) -> AsyncIterator[threading.Event]:
    """Release what waits in threads at the end of the block, whatever happens in it."""
    try:
        yield release
    finally:
        release.set()


# -- named and listed ----------------------------------------------------------------------------------


async def test_a_thread_that_overruns_is_named_with_its_stack_and_listed_until_it_ends(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    release, events = threading.Event(), Events()
    app.store.attach(events)

    def fetch() -> None:
        release.wait(30)

    @app.task(name="shop.report", timeout=TIMEOUT)
    def report() -> str:
        fetch()
        return "late"

    async with holding(release), working(app):
        handle = await report.aenqueue()
        record = await first_named(caplog)
        [one] = await listed(app, False)
        release.set()
        assert await handle.result(timeout=5) == "late"
        await listed(app)

    text = record.getMessage()
    assert text.startswith(f"the handler of shop.report (task {handle.id}) still runs ")
    assert "s after its timeout of 0.1 s, at " in text
    assert "in report; it keeps its slot until it ends: what it waits for needs a timeout" in text
    stack = record.stack_info or ""
    assert stack.startswith("Stack (innermost call last):\n")
    assert stack.index("in report\n    fetch()") < stack.index("in fetch\n    release.wait(30)")
    assert "in _work\n" not in stack
    assert json.loads(JsonFormatter().format(record))["stack"] == stack
    assert (record.task_id, record.task_type) == (handle.id, "shop.report")  # type: ignore[attr-defined]
    assert (one.task_id, one.type, one.attempt, one.replaced) == (handle.id, "shop.report", 1, False)
    assert one.overrun >= 0.2
    assert one.place in text
    assert len(named(caplog)) == 1
    assert f"the handler of shop.report (task {handle.id}) has ended" in caplog.text
    assert events.of(EventName.STUCK, handle.id) == 1


async def test_a_coroutine_that_ignores_its_cancellation_is_named_where_it_waits(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @app.task(timeout=TIMEOUT)
    async def crawl() -> None:
        await stubborn()

    async with working(app):
        handle = await crawl.aenqueue()
        record = await first_named(caplog)
        await listed(app, False)
        release.set()
        await handle.wait(timeout=5)

    assert "in crawl; it goes on after its cancellation, and keeps its slot" in record.getMessage()
    stack = record.stack_info or ""
    assert stack.index("in crawl\n    await stubborn()") < stack.index(
        "in stubborn\n    await release.wait()"
    )


async def test_a_coroutine_that_never_awaits_is_named_while_it_blocks_and_those_that_wait_for_it_are_not(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "STUCK_AFTER", 0.6)  # in which `patient` ends, once the loop goes on
    seen: list[int] = []

    @app.task(timeout=TIMEOUT)
    async def patient() -> None:
        await pause(5)

    @app.task(timeout=TIMEOUT)
    async def resize() -> None:
        block(2.0)
        seen.append(len(named(caplog)))

    async with working(app):
        waiting, handle = await patient.aenqueue(), await resize.aenqueue()
        await handle.wait(timeout=5)
        await eventually(lambda: waiting.id in caplog.text)

    assert seen == [1]
    [record] = named(caplog)
    assert handle.id in record.getMessage()
    assert "in resize; it blocks the event loop: until it ends, no other async" in record.getMessage()
    assert "in resize\n    block(2.0)" in (record.stack_info or "")


async def test_handlers_that_stop_when_they_are_asked_to_are_not_named(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "STUCK_AFTER", 0.6)

    @app.task(timeout=TIMEOUT)
    async def patient() -> None:
        await pause(30)

    @app.task(timeout=TIMEOUT)
    def polite(*, ctx: Context = INJECTED) -> None:
        while True:
            ctx.check()
            block(0.01)

    @app.task
    def unlimited() -> None:
        block(1.2)

    async with working(app):
        handles = [await one.aenqueue() for one in (patient, polite)]
        await (await unlimited.aenqueue()).wait(timeout=5)
        assert {(await one.task()).state for one in handles} == {State.SCHEDULED}
        assert await listed(app) == []

    assert named(caplog) == []


# -- found when they have ended -------------------------------------------------------------------------


def ended_late(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = (one.getMessage() for one in caplog.records)
    return [one for one in texts if "after its timeout of" in one and " ended " in one]


async def test_a_thread_that_holds_the_gil_beyond_its_timeout_is_reported_once(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    events, held = Events(), list[float]()
    app.store.attach(events)

    @app.task(timeout=TIMEOUT, name="shop.parse")
    def parse() -> str:
        held.append(hold_gil(1.5))
        return "done"

    async with working(app):
        handle = await parse.aenqueue()
        assert await handle.result(timeout=30) == "done"

    assert len(named(caplog)) == 1
    assert handle.id in named(caplog)[0].getMessage()
    assert events.of(EventName.STUCK, handle.id) == 1


async def test_a_thread_that_lets_others_look_between_two_calls_that_hold_the_gil_is_reported(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "STUCK_AFTER", 0.8)

    @app.task(timeout=TIMEOUT, name="shop.parse")
    def parse() -> None:
        for _ in range(2):  # each is shorter than the margin
            hold_gil(0.7)
            block(0.01)

    async with working(app):
        handle = await parse.aenqueue()
        await handle.wait(timeout=30)

    assert len(named(caplog)) == 1


@pytest.mark.usefixtures("blind")
async def test_a_handler_that_ran_on_unseen_is_reported_at_its_end(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    app.store.attach(events)

    @app.task(timeout=TIMEOUT, name="shop.thread")
    def in_thread() -> None:
        block(0.7)

    @app.task(timeout=TIMEOUT, name="shop.coroutine")
    async def on_loop() -> None:
        block(0.7)

    @app.task(timeout=TIMEOUT, name="shop.patient")
    async def patient() -> None:
        await pause(30)

    async with working(app):
        thread = await in_thread.aenqueue()
        await thread.wait(timeout=5)
        waiting = await patient.aenqueue()
        await eventually(lambda: events.of(EventName.CLAIMED, waiting.id))
        coroutine = await on_loop.aenqueue()
        await coroutine.wait(timeout=5)
        await until_timed_out(waiting)

    first, second = ended_late(caplog)
    assert first.startswith(f"the handler of shop.thread (task {thread.id}) ended 0.")
    assert "s after its timeout of 0.1 s, having run 0." in first
    assert second.startswith(f"the handler of shop.coroutine (task {coroutine.id}) ended 0.")
    assert "held Python's lock (the GIL) in C code, or the machine was overloaded" in second
    stuck = [events.of(EventName.STUCK, one.id) for one in (thread, coroutine, waiting)]
    assert stuck == [1, 1, 0]


async def test_a_thread_that_a_blocked_loop_asks_late_is_not_reported(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "STUCK_AFTER", 0.6)
    started = threading.Event()

    @app.task(timeout=TIMEOUT)
    def polite(*, ctx: Context = INJECTED) -> None:
        started.set()
        while True:
            ctx.check()
            block(0.01)

    @app.task
    async def resize() -> None:
        block(1.5)

    async with working(app):
        handle = await polite.aenqueue()
        await eventually(started.is_set)
        await (await resize.aenqueue()).wait(timeout=5)
        await until_timed_out(handle)

    assert named(caplog) == []


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch's thread gets no processor, as while a handler holds the GIL."""

    class BlindThread(threading.Thread):
        def run(self) -> None:
            if self.name != "windlass-loop-watch":
                super().run()

    monkeypatch.setattr(threading, "Thread", BlindThread)


# -- replaced ------------------------------------------------------------------------------------------


async def timed_out(handle: Handle[Any]) -> bool:
    task = await handle.task()
    return task.state is State.SCHEDULED and task.error is not None and task.error.type == "TimedOut"


async def until_timed_out(handle: Handle[Any]) -> None:
    async def look() -> Any:
        return await timed_out(handle)

    await eventually(look)


async def test_a_replaced_handler_times_out_and_gives_up_its_slot_and_what_it_does_later_is_dropped(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    release, events = threading.Event(), Events()
    failures: list[str] = []
    late: list[object] = []
    app.store.attach(events)
    app.on_error(lambda _, error: failures.append(str(error)))

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def report(*, ctx: Context = INJECTED) -> str:
        release.wait(30)
        ctx.progress(0.9, "too late")
        try:
            bool(ctx.once("mark"))
        except Exception as error:
            late.append(type(error).__name__)
            raise
        return "late"

    @app.task
    def quick() -> str:
        return "done"

    async with holding(release), working(app, slots=1):
        handle = await report.aenqueue()
        await until_timed_out(handle)
        assert await (await quick.aenqueue()).result(timeout=5) == "done"
        [one] = await listed(app, True)
        assert one.task_id == handle.id
        release.set()
        await listed(app)
        assert await timed_out(handle)
        assert await handle.progress() is None

    assert failures == ["exceeded its timeout of 0.1 s"]
    assert late == ["LeaseLost"]
    assert events.of(EventName.RETRIED, handle.id) == 1
    assert events.of(EventName.LOST, handle.id) == 0
    assert "its outcome is dropped, as its slot was used again" in caplog.text
    await assert_nothing_held(app)


async def test_a_task_that_a_running_limit_counts_keeps_its_slot_and_its_permit(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @app.task(timeout=TIMEOUT, on_stuck="replace", name="bank.charge")
    def charge() -> str:
        release.wait(30)
        return "done"

    app.limit("bank", type=charge, running=1)

    async with holding(release), working(app):
        first, second = await charge.aenqueue(), await charge.aenqueue()
        await eventually(lambda: "limit bank counts it" in caplog.text)
        states = [(await one.task()).state for one in (first, second)]
        assert states == [State.RUNNING, State.READY]
        release.set()
        assert await first.result(timeout=5) == "done"

    assert "another task, unless a limit on running tasks counts it" in named(caplog)[0].getMessage()


async def test_a_handler_whose_thread_starts_late_is_replaced_as_well(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_start, release = threading.Event(), threading.Event()

    class LateThread(threading.Thread):
        """A thread that gets no processor at first, if it is one for handlers."""

        def run(self) -> None:
            if self.name.startswith("windlass-handler"):
                may_start.wait(30)
            super().run()

    monkeypatch.setattr(threading, "Thread", LateThread)

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def report() -> None:
        release.wait(30)

    async with holding(may_start), holding(release), working(app):
        handle = await report.aenqueue()
        record = await first_named(caplog)
        may_start.set()
        await until_timed_out(handle)

    assert "cancellation" not in record.getMessage()


async def test_a_rate_does_not_keep_a_handler_from_being_replaced(app: App) -> None:
    release = threading.Event()

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def charge() -> None:
        release.wait(30)

    app.limit("bank", type=charge, rate="100/s")

    async with holding(release), working(app):
        handle = await charge.aenqueue()
        await until_timed_out(handle)


async def test_no_more_are_replaced_than_there_are_slots_until_one_ends(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    releases = [threading.Event() for _ in range(3)]

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def report(number: int) -> None:
        releases[number].wait(30)

    async with holding(releases[0]), holding(releases[1]), holding(releases[2]), working(app, slots=2):
        handles = [await report.aenqueue(number) for number in range(3)]
        found = await listed(app, False, True, True)
        held = next(one.task_id for one in found if not one.replaced)
        gone = next(number for number, one in enumerate(handles) if one.id != held)
        releases[gone].set()
        await until_timed_out(next(one for one in handles if one.id == held))

    text = "2 replaced handlers still run, as many as there are slots, and another handler is stuck: it and"
    assert caplog.text.count(text) == 1
    assert "; restart this program" in caplog.text
    assert (
        "; it keeps its slot until it or one of the replaced handlers has ended"
        in named(caplog)[2].getMessage()
    )


async def test_a_process_of_its_own_stops_to_be_recycled(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    release = threading.Event()

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def report() -> None:
        release.wait(30)

    @app.task
    def quick() -> None: ...

    async with holding(release):
        run = asyncio.create_task(app.worker(settings(slots=2, grace=0.2)).run(signals=True))
        first = [await report.aenqueue() for _ in range(2)]
        for handle in first:
            await until_timed_out(handle)
        for _ in range(2):
            await (await quick.aenqueue()).result(timeout=5)
        assert "replaced handlers still run" not in caplog.text
        third = await report.aenqueue()
        await asyncio.wait_for(run, 10)
        assert [await timed_out(one) for one in (*first, third)] == [True, True, True]

    why = "stopping: 2 replaced handlers still run, as many as there are slots, and another handler is stuck"
    assert why in caplog.text
    await assert_nothing_held(app)


async def test_a_further_handler_that_a_running_limit_counts_does_not_recycle_its_process(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def report() -> None:
        release.wait(30)

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def charge() -> None:
        release.wait(30)

    app.limit("bank", type=charge, running=1)

    async with holding(release), working(app, slots=1):
        await until_timed_out(await report.aenqueue())
        await charge.aenqueue()
        await eventually(lambda: "limit bank counts it" in caplog.text)

    assert "another handler is stuck" not in caplog.text


async def test_a_shutdown_does_not_wait_for_replaced_handlers(app: App) -> None:
    release = threading.Event()

    @app.task(timeout=TIMEOUT, on_stuck="replace")
    def report() -> None:
        release.wait(30)

    async with holding(release):
        async with asyncio.timeout(5), working(app, grace=60):
            handle = await report.aenqueue()
            await until_timed_out(handle)
        assert [one.state for one in await tasks(app)] == [State.SCHEDULED]


async def test_a_shutdown_counts_the_attempts_that_timed_out(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a handler that always hangs would never use up its attempts while workers restart."""
    release = threading.Event()

    @app.task(timeout=TIMEOUT, max_attempts=1)
    def report() -> None:
        release.wait(30)

    async with holding(release):
        handle = await report.aenqueue()
        async with working(app, grace=0.05):
            await eventually(lambda: "still runs" in caplog.text)
        [line] = await app.operator.attempts(handle.id)
        task = await handle.task()

    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert task.error.type == "TimedOut"
    assert line.outcome == "timedout"
    assert line.duration >= TIMEOUT


@pytest.mark.parametrize("options", [{}, {"process": True}])
def test_only_handlers_that_run_in_threads_can_be_replaced(app: App, options: dict[str, bool]) -> None:
    async def coroutine() -> None: ...

    with pytest.raises(InvalidOption, match="is for handlers that run in threads"):
        app.task(on_stuck="replace", **options)(at_top_level if options else coroutine)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="on_stuck must be 'hold' or 'replace', not 'wait'"):
        app.task(on_stuck="wait")(at_top_level)  # type: ignore[call-overload]


def at_top_level() -> None: ...
