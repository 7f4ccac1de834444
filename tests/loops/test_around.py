"""`@app.around`: functions around every handler, wherever it runs."""

import asyncio
import gc
import os
import re
import weakref
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from tests.contents import contents
from tests.loops import child_tasks, hooked_tasks
from tests.loops.child_tasks import app as child_app
from tests.loops.workers import assert_nothing_held, drained, error_of, eventually, pause, tasks, working
from windlass import App, Backoff, CallNext, Context, Fatal, InvalidOption, Snooze, State
from windlass._stores.memory import MemoryStore

LATE = 10.0  # seconds: a deadline that a loaded machine keeps, too


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=0, jitter=0))


@pytest.fixture
def child() -> Iterator[App]:
    """The app whose handlers run in child processes, on a store and with arounds of its own."""
    before = child_app.use_store(MemoryStore())
    yield child_app
    child_app.hooks.arounds.clear()
    child_app.hooks.error_hooks.clear()
    child_app.use_store(before)


def watch(app: App, name: str = "around") -> list[str]:
    """Declare an around that notes what it sees."""
    seen: list[str] = []

    @app.around
    async def watching(ctx: Context, call_next: CallNext) -> None:
        seen.append(f"{name}: {ctx.task.type.rpartition('.')[2]}")
        try:
            seen.append(f"{name}: {await call_next()!r}")
        except BaseException as error:
            seen.append(f"{name}: {type(error).__name__}({error})")
            raise

    return seen


# -- order, results and exceptions ---------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_traceback_has_the_around_and_the_handler_and_nothing_of_windlass_between(
    app: App, blocking: bool
) -> None:
    @app.around
    async def outside(ctx: Context, call_next: CallNext) -> None:
        await call_next()

    def fail() -> None:
        App("nothing://")

    async def afail() -> None:
        App("nothing://")

    failing = app.task(fail if blocking else afail, name="failing", max_attempts=1)
    await failing.aenqueue()
    await drained(app)

    (task,) = await tasks(app, State.DEAD)
    assert task.error is not None
    assert task.error.traceback is not None
    names = re.findall(r"^  File .* in (\w+)$", task.error.traceback, re.MULTILINE)
    assert names[:2] == ["outside", "fail" if blocking else "afail"]
    assert names[2] == "__init__", "what the handler has called is kept"


async def test_the_first_declared_is_outermost_and_each_sees_the_result(app: App) -> None:
    seen: list[str] = []

    def declare(name: str) -> None:
        @app.around
        async def one(ctx: Context, call_next: CallNext) -> None:
            seen.append(f"{name} of attempt {ctx.attempt}")
            seen.append(f"{name} got {await call_next()}")

    declare("a")
    declare("b")

    @app.task
    async def work() -> list[int]:
        seen.append("work")
        return [1]

    handle = await work.aenqueue()
    await drained(app)

    assert seen == ["a of attempt 1", "b of attempt 1", "work", "b got [1]", "a got [1]"]
    assert await handle.result(timeout=LATE) == [1]


async def test_it_sees_the_exception_of_a_handler_on_the_loop_or_in_a_thread(app: App) -> None:
    seen = watch(app)

    @app.task(max_attempts=1)
    async def on_the_loop() -> None:
        raise ValueError("loop")

    @app.task(max_attempts=1)
    def in_a_thread() -> None:
        raise KeyError("thread")

    await on_the_loop.aenqueue()
    await in_a_thread.aenqueue()
    await drained(app, slots=1)

    assert seen == [
        "around: on_the_loop", "around: ValueError(loop)",
        "around: in_a_thread", "around: KeyError('thread')",
    ]  # fmt: skip


async def test_it_sees_a_payload_that_does_not_fit_and_a_result_that_is_not_json(app: App) -> None:
    seen = watch(app)

    @app.task
    async def odd() -> object:
        return object()

    elsewhere = App(app.store.inner)  # does not know the type
    await elsewhere.client.send(odd.name, {"no": "parameter"})
    await odd.aenqueue()
    await drained(app, slots=1)

    assert [line.partition("(")[0] for line in seen] == ["around: odd", "around: Fatal"] * 2
    assert {task.state for task in await tasks(app)} == {State.DEAD}


async def test_an_exception_can_be_translated(app: App) -> None:
    errors: list[BaseException] = []
    app.on_error(lambda _, error: errors.append(error))

    @app.around
    async def hopeless(ctx: Context, call_next: CallNext) -> None:
        try:
            await call_next()
        except LookupError as error:
            raise Fatal("the customer is gone") from error

    @app.task(max_attempts=5)
    async def work() -> None:
        raise KeyError("customer")

    await work.aenqueue()
    await drained(app)

    [task] = await tasks(app)
    assert (task.state, task.attempt) == (State.DEAD, 1)
    text = await error_of(app)
    assert "Fatal: the customer is gone" in text
    assert "hopeless" in text.rpartition("raised by the around ")[2]
    assert [type(error) for error in errors] == [Fatal]


async def test_an_exception_cannot_be_hidden_nor_a_result_replaced(app: App) -> None:
    @app.around
    async def meddling(ctx: Context, call_next: CallNext) -> str:
        with suppress(ValueError):
            await call_next()
        return "mine"

    @app.task(max_attempts=1)
    async def failing() -> None:
        raise ValueError("it failed")

    @app.task
    async def working_well() -> str:
        return "the handler's"

    dead = await failing.aenqueue()
    well = await working_well.aenqueue()
    await drained(app)

    task = await dead.wait(timeout=LATE)
    assert task.error is not None
    assert (task.state, task.error.message) == (State.DEAD, "it failed")
    assert await well.result(timeout=LATE) == "the handler's"


async def test_raising_before_the_handler_fails_the_attempt_and_names_the_around(app: App) -> None:
    seen: list[str] = []

    @app.around
    async def guarding(ctx: Context, call_next: CallNext) -> None:
        raise PermissionError("not this tenant")

    @app.task(max_attempts=1)
    async def work() -> None:
        seen.append("work")

    await work.aenqueue()
    await drained(app)

    text = await error_of(app)
    assert "PermissionError: not this tenant" in text
    assert "raised by the around " in text
    assert seen == []


async def test_an_around_can_postpone_a_task(app: App) -> None:
    @app.around
    async def later(ctx: Context, call_next: CallNext) -> None:
        raise Snooze(60)

    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    await drained(app)

    [task] = await tasks(app)
    assert (task.state, task.attempt) == (State.SCHEDULED, 0)


async def _returns_early(ctx: Context, call_next: CallNext) -> None: ...


async def _calls_twice(ctx: Context, call_next: CallNext) -> None:
    await call_next()
    await call_next()


async def _does_not_wait(ctx: Context, call_next: CallNext) -> None:
    never_awaited.add(asyncio.ensure_future(call_next()))  # type: ignore[arg-type]


never_awaited: set[asyncio.Future[Any]] = set()


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (_returns_early, "_returns_early returned before call_next had run the handler"),
        (_calls_twice, "_calls_twice called call_next twice"),
        (_does_not_wait, "_does_not_wait returned before call_next had run the handler"),
    ],
)
async def test_an_around_must_call_the_handler_once(app: App, wrong: Any, complaint: str) -> None:
    app.around(wrong)

    @app.task(max_attempts=1)
    async def work() -> None: ...

    await work.aenqueue()
    await drained(app)

    assert complaint in await error_of(app)


def _one_parameter_too_few() -> Iterator[None]:
    yield


async def _no_call_next(ctx: Context) -> None: ...


def _not_a_generator(ctx: Context) -> None: ...


async def _async_generator(ctx: Context) -> Any:
    yield


@pytest.mark.parametrize(
    "wrong", [_one_parameter_too_few, _no_call_next, _not_a_generator, _async_generator, 7]
)
def test_what_cannot_be_an_around_is_refused_when_it_is_declared(app: App, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"around takes an async function of \(ctx, call_next\)"):
        app.around(wrong)


# -- context -------------------------------------------------------------------------------------------


async def test_it_shares_the_context_and_the_context_variables_of_the_handler(app: App) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="none")
    seen: list[str] = []

    @app.around
    async def binding(ctx: Context, call_next: CallNext) -> None:
        seen.append(tenant.get())
        tenant.set(ctx.task.tenant)
        ctx.note(outside=1)
        await call_next()
        ctx.note(after=3)

    @app.task
    async def on_the_loop(ctx: Context) -> None:
        ctx.note(inside=2)
        seen.append(tenant.get())

    @app.task
    def in_a_thread(ctx: Context) -> None:
        ctx.note(inside=2)
        seen.append(tenant.get())

    await on_the_loop.using(tenant="acme").aenqueue()
    await in_a_thread.using(tenant="globex").aenqueue()
    await drained(app, slots=1)

    assert seen == ["none", "acme", "none", "globex"]
    for task in await tasks(app):
        [attempt] = await app.store.attempts(task.id)
        assert attempt.notes == b'{"outside":1,"inside":2,"after":3}'


async def test_an_exception_is_freed_with_its_task_without_the_garbage_collector(app: App) -> None:
    watch(app)
    kept: list[weakref.ref[Any]] = []

    class Picture:
        pass

    @app.task(max_attempts=1)
    async def failing() -> None:
        picture = Picture()
        kept.append(weakref.ref(picture))
        raise ValueError

    gc.collect()
    gc.disable()
    try:
        async with working(app):
            await (await failing.aenqueue()).wait(timeout=LATE)
            await eventually(lambda: kept[0]() is None)
    finally:
        gc.enable()


# -- stopping ------------------------------------------------------------------------------------------


async def test_a_timeout_cancels_the_handler_through_its_arounds(app: App) -> None:
    seen = watch(app)

    @app.task(timeout=0.1, max_attempts=1)
    async def slow() -> None:
        await pause(60)

    await slow.aenqueue()
    await drained(app)

    assert seen == ["around: slow", "around: CancelledError()"]
    assert "TimedOut" in await error_of(app)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_timeout_covers_the_around_itself(app: App, when: str) -> None:
    @app.around
    async def slow(ctx: Context, call_next: CallNext) -> None:
        if when == "before":
            await pause(60)
        await call_next()
        await pause(60)

    @app.task(timeout=0.1, max_attempts=1)
    def work() -> None: ...

    await work.aenqueue()
    await drained(app)

    assert "TimedOut" in await error_of(app)


async def test_a_cancelled_task_ends_as_cancelled_even_if_an_around_hides_it(app: App) -> None:
    started = asyncio.Event()

    @app.around
    async def hiding(ctx: Context, call_next: CallNext) -> None:
        with suppress(asyncio.CancelledError):
            await call_next()

    @app.task
    async def slow() -> None:
        started.set()
        await pause(60)

    handle = await slow.aenqueue()
    async with working(app):
        await asyncio.wait_for(started.wait(), LATE)
        await handle.cancel()
        task = await handle.wait(timeout=LATE)

    assert task.state is State.CANCELLED
    await assert_nothing_held(app)


# -- child processes -----------------------------------------------------------------------------------


async def test_it_runs_in_the_worker_around_a_child_process(child: App) -> None:
    seen = watch(child)
    pids: list[int] = []

    @child.around
    async def where(ctx: Context, call_next: CallNext) -> None:
        pids.append(os.getpid())
        await call_next()

    handle = await child_tasks.double.aenqueue(4)
    await drained(child)

    assert seen == ["around: double", "around: {'double': 8, 'year': None}"]
    assert pids == [os.getpid()]
    assert await handle.result(timeout=LATE) == {"double": 8, "year": None}


@pytest.mark.parametrize(
    ("how", "state", "attempt", "error"),
    [
        ("retry", State.SCHEDULED, 1, "Retry(busy)"),
        ("snooze", State.SCHEDULED, 0, "Snooze()"),
        ("fatal", State.DEAD, 1, "Fatal(hopeless)"),
        ("declared", State.DEAD, 1, "Declined(not this card)"),
    ],
)
async def test_the_outcome_of_a_child_is_kept(
    child: App, how: str, state: State, attempt: int, error: str
) -> None:
    seen = watch(child)
    await child_tasks.steer.aenqueue(how)
    await drained(child)

    [task] = await tasks(child)
    assert (task.state, task.attempt) == (state, attempt)
    assert seen[-1].partition(": ")[2].partition("(")[0] == error.partition("(")[0]


@pytest.mark.parametrize(("how", "state", "attempt"), [("fatal", State.DEAD, 1), ("declared", State.DEAD, 1)])
async def test_the_outcome_of_a_child_is_kept_through_a_task_group(
    child: App, how: str, state: State, attempt: int
) -> None:
    @child.around
    async def grouped(ctx: Context, call_next: CallNext) -> None:
        async with asyncio.TaskGroup():
            await call_next()

    await child_tasks.steer.aenqueue(how)
    await drained(child)

    [task] = await tasks(child)
    assert (task.state, task.attempt) == (state, attempt)
    assert "raised by the around" not in contents(task.error)


async def test_it_sees_that_a_child_died_or_timed_out(child: App) -> None:
    seen = watch(child)
    await child_tasks.die.aenqueue("kill")
    await drained(child)
    await child_tasks.nap.using(timeout=0.2).aenqueue(60)
    await drained(child)

    assert [line.partition("(")[0] for line in seen] == [
        "around: die", "around: ProcessDied", "around: nap", "around: TimedOut",
    ]  # fmt: skip
    assert {task.error.type for task in await tasks(child)} == {"ProcessDied", "TimedOut"}


async def test_notes_of_an_around_and_of_a_child_are_both_kept(log: Path) -> None:
    @hooked_tasks.app.around
    async def noting(ctx: Context, call_next: CallNext) -> None:
        ctx.note(before=1)
        await call_next()
        ctx.note(after=2)

    try:
        handle = await hooked_tasks.note.aenqueue()
        await drained(hooked_tasks.app, processes=1)
        [attempt] = await hooked_tasks.app.store.attempts(handle.id)
    finally:
        hooked_tasks.app.hooks.arounds.clear()

    assert attempt.notes is not None
    assert [part.partition(b":")[0] for part in attempt.notes.strip(b"{}").split(b",")] == [
        b'"before"', b'"inside"', b'"after"',
    ]  # fmt: skip


async def test_notes_of_a_child_that_are_too_long_with_those_of_an_around_are_dropped(
    log: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @hooked_tasks.app.around
    async def noting(ctx: Context, call_next: CallNext) -> None:
        ctx.note(before="y" * 2_000)
        await call_next()

    try:
        handle = await hooked_tasks.note_much.aenqueue()
        await drained(hooked_tasks.app, processes=1)
        [attempt] = await hooked_tasks.app.store.attempts(handle.id)
    finally:
        hooked_tasks.app.hooks.arounds.pop()

    assert (await handle.task()).state is State.COMPLETED
    assert b"before" in (attempt.notes or b"")
    assert b"inside" not in (attempt.notes or b"")
    assert "dropped the notes that the handler of task" in caplog.text
