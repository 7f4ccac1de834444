"""Client and handles, async and blocking: enqueueing, waiting for results."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.loops.workers import drained, eventually, pause, tasks, watched, working
from windlass import (
    App,
    DuplicateTask,
    IdempotencyConflict,
    InvalidOption,
    InvalidPayload,
    NotFinished,
    NotFound,
    State,
    StoreError,
    TaskCancelled,
    TaskDead,
    chain,
)
from windlass._model.task import Enqueued, NewTask
from windlass._store.forward import ForwardingStore
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.mark.parametrize("when", list(Fault))
@pytest.mark.parametrize("key", [None, "order-7"])
async def test_an_enqueue_whose_reply_was_lost_is_repeated_and_makes_one_task(
    when: Fault, key: str | None
) -> None:
    app, watch = watched()

    @app.task(unique=True)
    async def note(n: int) -> int:
        return n

    watch.then("enqueue", when)
    prepared = note.using(idempotency_key=key) if key else note.using()
    handle = await prepared.aenqueue(1)

    assert handle.created
    assert [task.id for task in await tasks(app)] == [handle.id]


class _Repeating(ForwardingStore):
    """A store that repeats each enqueue itself, as a JetStream store does whose owner was lost meanwhile."""

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        await self.inner.enqueue(batch)
        return await self.inner.enqueue(batch)


async def test_a_chain_that_the_store_enqueued_again_itself_is_new() -> None:
    app = App("memory://")
    app.use_store(_Repeating(MemoryStore()))

    @app.task
    async def note(n: int) -> int:
        return n

    handle = await app.client.enqueue(chain(note.step(1), note.step(2)))

    assert handle.created
    assert len(handle.following) == 1


async def test_an_enqueue_that_fails_twice_is_told() -> None:
    app, watch = watched()

    @app.task
    async def note() -> None: ...

    watch.then("enqueue", Fault.BEFORE, Fault.BEFORE)
    with pytest.raises(StoreError):
        await note.aenqueue()

    assert await tasks(app) == []


async def test_one_idempotency_key_is_one_task(app: App) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    first = await note.using(idempotency_key="k").aenqueue(1)
    again = await note.using(idempotency_key="k").aenqueue(1)
    with pytest.raises(IdempotencyConflict) as conflict:
        await note.using(idempotency_key="k").aenqueue(2)
    elsewhere = await note.using(idempotency_key="k", tenant="acme").aenqueue(2)

    assert (first.created, again.created, again.id) == (True, False, first.id)
    assert conflict.value.standing == first.id
    assert elsewhere.id != first.id


async def test_a_unique_task_is_refused_while_its_twin_stands(app: App) -> None:
    @app.task(unique=True)
    async def note(n: int) -> int:
        return n

    first = await note.aenqueue(1)
    with pytest.raises(DuplicateTask) as refusal:
        await note.aenqueue(1)
    await drained(app)
    again = await note.aenqueue(1)

    assert refusal.value.standing == first.id
    assert again.id != first.id


async def test_many_are_enqueued_all_or_none(app: App) -> None:
    @app.task(unique=True)
    async def note(n: int) -> int:
        return n

    await note.aenqueue(2)
    with pytest.raises(DuplicateTask):
        await note.aenqueue_many([{"n": n} for n in range(5)])
    with pytest.raises(InvalidPayload):
        await note.aenqueue_many([{"n": 7}, {"n": "eight"}])
    with pytest.raises(InvalidOption, match="an idempotency key identifies one task"):
        await note.using(idempotency_key="k").aenqueue_many([{"n": 9}])

    assert len(await tasks(app)) == 1


async def test_more_than_a_call_may_have_are_refused_together(app: App) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    with pytest.raises(InvalidOption, match="at most 100,000 tasks, not 100,001; split it"):
        await app.client.enqueue_many([note.step(n=1)] * 100_001)
    assert await tasks(app) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prioritty": 1}, "did you mean 'priority'"),
        ({"countdown": 1}, "unknown option 'countdown'"),
        ({"delay": "soon"}, "delay must be"),
        ({"delay": -1}, "from 0 to ten years"),
        ({"run_at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is the mistake
        ({"run_at": datetime(2026, 1, 1, tzinfo=UTC), "delay": 5}, "exclude each other"),
        ({"queue": "no spaces please"}, "is not a valid name"),
        ({"tenant": "a\0b"}, "is not a valid name"),
        ({"priority": "urgent"}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": 0}, "greater than 0"),
        ({"idempotency_for": 5}, "idempotency_for needs an idempotency_key"),
        ({"idempotency_key": ""}, "non-empty"),
        ({"trace": "abc"}, "traceparent"),
        ({"next": "step"}, "next must be steps"),
    ],
)
async def test_a_wrong_option_is_refused_clearly_and_nothing_is_stored(
    app: App, options: dict[str, Any], message: str
) -> None:
    @app.task
    async def note() -> None: ...

    with pytest.raises(InvalidOption, match=message):
        await note.using(**options).aenqueue()

    assert await tasks(app) == []


async def test_timers_ends_with_the_task_or_with_the_timeout(app: App) -> None:
    gate = asyncio.Event()

    @app.task
    async def slow() -> str:
        await gate.wait()
        return "done"

    handle = await slow.aenqueue()
    with pytest.raises(NotFinished, match=r"is still ready after 0\.05 s; the timeout does not cancel it"):
        await handle.wait(timeout=0.05)
    async with working(app):
        waiting = asyncio.create_task(handle.result(timeout="5s"))
        await pause(0.02)
        gate.set()

        assert await waiting == "done"
    assert isinstance(NotFinished("x"), TimeoutError)


async def test_a_result_that_never_comes_is_an_error_that_says_why(app: App) -> None:
    @app.task(max_attempts=1)
    async def failing() -> None:
        raise ValueError("of natural causes")

    dying, cancelled = await failing.aenqueue(), await failing.aenqueue()
    await cancelled.cancel(by="ann", why="not needed")
    await drained(app)

    with pytest.raises(TaskDead, match="ValueError: of natural causes"):
        await dying.result(timeout=1)
    with pytest.raises(TaskCancelled, match="not needed"):
        await cancelled.result(timeout=1)


async def test_a_task_that_is_not_there_is_not_found(app: App) -> None:
    with pytest.raises(NotFound, match="never enqueued here, or its record was pruned"):
        await app.client.get("01900000-0000-7000-8000-000000000000")


async def test_a_handle_can_be_had_again_by_its_id(app: App) -> None:
    @app.task
    async def note() -> list[int]:
        return [1]

    made = await note.aenqueue()
    await drained(app)
    handle = await app.client.get(made.id)

    assert (handle.created, await handle.result(timeout=1)) == (False, [1])


async def test_a_task_remembers_who_enqueued_it_and_under_which_trace(app: App) -> None:
    app = App("memory://", identity="the shop")
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"

    @app.task
    async def note() -> None: ...

    given = await (await note.using(trace=trace).aenqueue()).task()
    made = await (await note.aenqueue()).task()

    assert (given.enqueued_by, given.trace) == ("the shop", trace)
    assert made.trace is not None
    assert made.trace != trace


def test_blocking_callers_enqueue_and_wait_without_a_loop(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    handle = add.enqueue(1, b=2)
    many = add.enqueue_many([{"a": n, "b": n} for n in range(3)])
    asyncio.run(_drain(app))

    assert handle.result(timeout=1) == 3
    assert [one.result(timeout=1) for one in many] == [0, 2, 4]
    assert (handle.state(), handle.created, handle.progress()) == (State.COMPLETED, True, None)
    assert app.sync_client.get(handle.id).task().result == b"3"


async def _drain(app: App) -> None:
    await drained(app)


def test_blocking_callers_get_the_same_errors(app: App) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    with pytest.raises(InvalidPayload):
        add.enqueue("one")  # type: ignore[arg-type]
    with pytest.raises(NotFinished):
        add.enqueue(1).wait(timeout=0.02)
    with pytest.raises(NotFound):
        app.sync_client.get("01900000-0000-7000-8000-000000000000")


def test_blocking_callers_of_many_threads_share_one_app(app: App) -> None:
    @app.task
    def note(n: int) -> int:
        return n

    start = threading.Barrier(8)

    def enqueue(k: int) -> list[str]:
        start.wait(5)
        return [note.enqueue(k * 100 + n).id for n in range(25)]

    with ThreadPoolExecutor(8) as pool:
        ids = [task_id for found in pool.map(enqueue, range(8)) for task_id in found]

    assert len(set(ids)) == 200
    assert sum(t.name == "windlass-sync" for t in threading.enumerate()) >= 1
    assert len(list(app.sync_operator.every())) == 200


async def test_a_blocking_enqueue_works_inside_a_running_loop(app: App) -> None:
    @app.task
    async def outer() -> str:
        return inner.enqueue(2).id

    @app.task
    async def inner(n: int) -> int:
        return n

    handle = await outer.aenqueue()
    await drained(app)

    assert len(await tasks(app, State.COMPLETED)) == 2
    assert await (await app.client.get(await handle.result(timeout=1))).result(timeout=1) == 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_can_enqueue(app: App) -> None:
    @app.task
    def note(n: int) -> int:
        return n

    note.enqueue(1)  # the thread of the parent stands
    app._loop._lock.acquire()  # as another thread of the parent may at the moment of the fork
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child's coverage is not collected
        signal.alarm(10)  # a child that hangs is not left behind
        try:
            os._exit(0 if note.enqueue(2).created and len(app.sync_operator.find().items) == 2 else 1)
        except BaseException:  # noqa: BLE001 - a forked child of pytest must never go on
            os._exit(2)
    app._loop._lock.release()

    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert note.enqueue(3).created


async def test_the_thread_of_an_app_that_nobody_uses_any_more_ends() -> None:
    before = {*threading.enumerate()}
    app = App("memory://")

    @app.task
    def note() -> None: ...

    await asyncio.to_thread(note.enqueue)
    assert [t.name for t in threading.enumerate() if t not in before and "sync" in t.name]
    del app, note

    def is_over() -> bool:
        gc.collect()
        return not [t for t in threading.enumerate() if t not in before and t.name == "windlass-sync"]

    await eventually(is_over)
