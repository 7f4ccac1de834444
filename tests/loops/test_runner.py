"""Handlers in the event loop and in threads: what they receive, and what becomes of their results."""

import asyncio
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.loops.workers import block, drained, eventually, pause, tasks, working
from windlass import INJECTED, App, Context, InvalidPayload, State, TaskDead

tenant_of: ContextVar[str] = ContextVar("tenant_of", default="nobody")


@dataclass
class Address:
    street: str
    number: int


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_the_result_of_an_async_handler_reaches_the_caller(app: App) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    handle = await add.aenqueue(1, b=2)
    await drained(app)

    assert await handle.result(timeout=1) == 3


async def test_the_result_of_a_blocking_handler_reaches_the_caller(app: App) -> None:
    @app.task
    def name_of_thread() -> str:
        return threading.current_thread().name

    handle = await name_of_thread.aenqueue()
    await drained(app)

    assert (await handle.result(timeout=1)).startswith("windlass-handler")


@pytest.mark.parametrize("blocking", [False, True])
async def test_arguments_arrive_as_the_types_that_the_handler_declares(app: App, blocking: bool) -> None:
    seen: list[Any] = []

    def take(to: Address, at: datetime, tags: set[str], plain: Any = None, limit: float = 1.5) -> Address:
        seen.extend([to, at, tags, plain, limit])
        return to

    async def atake(
        to: Address, at: datetime, tags: set[str], plain: Any = None, limit: float = 1.5
    ) -> Address:
        return take(to, at, tags, plain, limit)

    declared = app.task(take if blocking else atake)
    moment = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    handle = await declared.aenqueue(Address("Elm", 3), at=moment, tags={"a", "b"})
    await drained(app)

    assert seen == [Address("Elm", 3), moment, {"a", "b"}, None, 1.5]
    assert await handle.result(timeout=1) == Address("Elm", 3)


async def test_a_default_is_taken_when_the_task_runs_and_not_when_it_is_enqueued(app: App) -> None:
    @app.task
    async def greet(name: str, greeting: str = "hello") -> str:
        return f"{greeting} {name}"

    handle = await greet.aenqueue("Ann")
    task = await handle.task()
    await drained(app)

    assert task.payload == b'{"name":"Ann"}'
    assert await handle.result(timeout=1) == "hello Ann"


async def test_open_ended_handlers_get_everything_that_was_enqueued(app: App) -> None:
    @app.task
    async def collect(first: int, **rest: Any) -> dict[str, Any]:
        return {"first": first, **rest}

    handle = await collect.aenqueue(1, second=2, third=[3])
    await drained(app)

    assert await handle.result(timeout=1) == {"first": 1, "second": 2, "third": [3]}


async def test_the_context_is_injected_however_it_is_declared(app: App) -> None:
    seen: list[tuple[str, int]] = []

    @app.task
    async def keyword_only(*, ctx: Context) -> None:
        seen.append((ctx.task_id, ctx.attempt))

    @app.task
    async def without_default(ctx: Context, number: int) -> None:
        seen.append((ctx.task_id, number))

    @app.task
    def with_default(number: int, context: Context = INJECTED) -> None:
        seen.append((context.task_id, number))

    @app.task
    async def untyped(ctx) -> None:  # type: ignore[no-untyped-def]
        seen.append((ctx.task_id, ctx.attempt))

    handles = [
        await keyword_only.aenqueue(),  # type: ignore[call-arg]
        await without_default.aenqueue(number=7),  # type: ignore[call-arg]
        await with_default.aenqueue(8),
        await untyped.aenqueue(),
    ]
    await drained(app, slots=1)

    assert seen == [(handle.id, n) for handle, n in zip(handles, [1, 7, 8, 1], strict=True)]


async def test_the_context_knows_the_task_and_gives_one_key_for_all_attempts(app: App) -> None:
    seen: list[tuple[int, bool, int, str, str]] = []

    @app.task(max_attempts=2, backoff=lambda _attempt, _draw: 0)  # type: ignore[arg-type,return-value]
    async def charge(*, ctx: Context) -> None:
        seen.append(
            (ctx.attempt, ctx.is_last_attempt, ctx.fence, ctx.idempotency_key(), ctx.idempotency_key("b"))
        )
        raise ValueError("once more")

    await charge.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    first, second = seen
    assert (first[:3], second[:3]) == ((1, False, 1), (2, True, 2))
    assert first[3:] == second[3:]
    assert first[3] != first[4]


async def test_the_context_is_no_part_of_the_payload(app: App) -> None:
    @app.task
    async def quiet(*, ctx: Context) -> None:
        return None

    with pytest.raises(Exception, match="ctx is passed by the worker"):
        await quiet.aenqueue(ctx=None)  # type: ignore[arg-type]

    assert await tasks(app) == []


@pytest.mark.parametrize("blocking", [False, True])
async def test_context_variables_do_not_leak_into_the_next_task_of_a_slot(app: App, blocking: bool) -> None:
    seen: list[str] = []

    def visit(who: str) -> None:
        seen.append(tenant_of.get())
        tenant_of.set(who)

    async def avisit(who: str) -> None:
        visit(who)
        await asyncio.sleep(0)
        assert tenant_of.get() == who

    declared = app.task(visit if blocking else avisit)
    await declared.aenqueue_many([{"who": f"tenant {n}"} for n in range(5)])
    await drained(app, slots=1)

    assert seen == ["nobody"] * 5
    assert await tasks(app, State.DEAD) == []


@pytest.mark.parametrize(("slots", "blocking"), [(1, False), (3, False), (3, True)])
async def test_slots_limit_how_many_run_at_once_exactly(app: App, slots: int, blocking: bool) -> None:
    gate = threading.Event()
    lock = threading.Lock()
    now: list[int] = []
    most = 0

    def enter() -> None:
        nonlocal most
        with lock:
            now.append(1)
            most = max(most, len(now))

    def leave() -> None:
        with lock:
            now.pop()

    @app.task
    def wait_in_thread() -> None:
        enter()
        gate.wait(5)
        leave()

    @app.task
    async def wait_in_loop() -> None:
        enter()
        await eventually(gate.is_set)
        leave()

    declared = wait_in_thread if blocking else wait_in_loop
    await declared.aenqueue_many([{} for _ in range(10)])
    async with working(app, slots=slots):
        await eventually(lambda: most == slots)
        await pause(0.05)  # time enough for one too many to start
        gate.set()
        await eventually(lambda: _all_completed(app, 10))

    assert most == slots


async def _all_completed(app: App, number: int) -> bool:
    return len(await tasks(app, State.COMPLETED)) == number


async def test_a_result_that_is_not_json_kills_the_task_and_says_why(app: App) -> None:
    @app.task
    async def odd() -> object:
        return object()

    handle = await odd.aenqueue()
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert "the handler ran, but the result at its root is an object" in task.error.message


async def test_a_payload_that_no_longer_fits_its_handler_kills_the_task_and_says_where(app: App) -> None:
    @app.task(name="mail.welcome")
    async def welcome(user_id: int) -> None:
        raise AssertionError("it must not run")

    handle = await App(app.store).client.send("mail.welcome", {"user_id": "seven"})
    await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert "does not fit mail.welcome(user_id: int)" in task.error.message
    with pytest.raises(TaskDead, match="does not fit"):
        await handle.result(timeout=1)


async def test_a_type_that_this_worker_does_not_know_is_put_back_uncounted(app: App) -> None:
    handle = await app.client.send("somebody.elses", {"n": 1})
    worker = await drained(app)

    task = await handle.task()
    assert (task.state, task.attempt, worker.ran) == (State.READY, 0, 0)
    assert task.run_at == task.created_at  # where it was in its queue


@pytest.mark.parametrize("payload", [{}, {"a": 1, "b": 2, "c": 3}, {"a": "one", "b": 2}, {"a": None, "b": 1}])
async def test_wrong_names_and_types_are_refused_and_nothing_is_stored(
    app: App, payload: dict[str, Any]
) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(InvalidPayload, match=r"add\(a: int, b: int\)"):
        await add.aenqueue(**payload)

    assert await tasks(app) == []


async def test_a_decorated_function_is_still_a_plain_function(app: App) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    assert await double(4) == 8
    assert await tasks(app) == []


async def test_a_blocking_handler_holds_up_no_other(app: App) -> None:
    gate = threading.Event()
    done: list[str] = []

    @app.task
    def slow() -> None:
        gate.wait(5)
        done.append("slow")

    @app.task
    async def quick() -> None:
        done.append("quick")
        gate.set()

    await slow.aenqueue()
    await quick.aenqueue()
    await drained(app)

    assert done == ["quick", "slow"]


async def test_threads_are_kept_for_the_next_task(app: App) -> None:
    names: set[str] = set()

    @app.task
    def note() -> None:
        names.add(threading.current_thread().name)
        block(0.001)

    await note.aenqueue_many([{} for _ in range(30)])
    await drained(app, slots=2)

    assert len(names) <= 3


def test_a_handler_of_positional_values_is_refused_at_its_declaration(app: App) -> None:
    with pytest.raises(Exception, match="by position"):

        @app.task
        def bad(a: int, /) -> None: ...
