"""`Depends`: values that a handler gets by annotation, opened for its run and closed after it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from tests.loops import hooked_tasks
from tests.loops.hooked_log import lines
from tests.loops.test_around import error_of
from tests.loops.workers import drained, pause, tasks, working
from windlass import INJECTED, App, Backoff, Context, Depends, Fatal, InvalidOption, State

if TYPE_CHECKING:
    from decimal import Decimal as ForTypeCheckers

LATE = 10.0  # seconds: a deadline that a loaded machine keeps, too


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=0, jitter=0))


def plain() -> str:
    return "plain"


async def coroutine() -> str:
    await asyncio.sleep(0)
    return "coroutine"


def generator() -> Iterator[str]:
    yield "generator"


async def async_generator() -> AsyncIterator[str]:
    yield "async generator"


@contextmanager
def manager() -> Iterator[str]:
    yield "manager"


@asynccontextmanager
async def async_manager() -> AsyncIterator[str]:
    yield "async manager"


class Instance:
    def __init__(self, name: Annotated[str, Depends(plain)], size: int = 3) -> None:
        self.name = f"{name} of {size}"

    def __repr__(self) -> str:
        return self.name


# -- values ----------------------------------------------------------------------------------------


async def test_an_async_handler_gets_values_of_every_kind_of_function(app: App) -> None:
    seen: list[Any] = []

    @app.task
    async def work(
        n: int,
        *,
        a: Annotated[str, Depends(plain)] = INJECTED,
        b: Annotated[str, Depends(coroutine)] = INJECTED,
        c: Annotated[str, Depends(generator)] = INJECTED,
        d: Annotated[str, Depends(async_generator)] = INJECTED,
        e: Annotated[str, Depends(manager)] = INJECTED,
        f: Annotated[str, Depends(async_manager)] = INJECTED,
        g: Annotated[Instance, Depends(Instance)] = INJECTED,
    ) -> None:
        seen.extend([n, a, b, c, d, e, f, str(g)])

    await work.aenqueue(7)
    await drained(app)

    assert seen == [
        7, "plain", "coroutine", "generator", "async generator", "manager", "async manager", "plain of 3",
    ]  # fmt: skip


async def test_a_handler_in_a_thread_gets_its_dependencies_in_that_thread(app: App) -> None:
    threads: list[int] = []

    def opened() -> Iterator[str]:
        threads.append(threading.get_ident())
        yield "open"
        threads.append(threading.get_ident())

    @app.task
    def work(value: Annotated[str, Depends(opened)] = INJECTED) -> str:
        threads.append(threading.get_ident())
        return value

    handle = await work.aenqueue()
    await drained(app)

    assert await handle.result(timeout=LATE) == "open"
    assert len(threads) == 3
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


async def test_dependencies_nest_are_opened_once_a_run_and_closed_in_reverse(app: App) -> None:
    seen: list[str] = []

    async def pool(ctx: Context) -> AsyncIterator[str]:
        seen.append(f"open pool for {ctx.task.tenant}")
        yield "pool"
        seen.append("close pool")

    def session(source: Annotated[str, Depends(pool)]) -> Iterator[str]:
        seen.append("open session")
        yield f"session of {source}"
        seen.append("close session")

    @app.task
    async def work(
        one: Annotated[str, Depends(session)] = INJECTED,
        other: Annotated[str, Depends(pool)] = INJECTED,
        again: Annotated[str, Depends(session)] = INJECTED,
    ) -> None:
        seen.append(f"{one}, {other}, {one is again}")

    await work.using(tenant="acme").aenqueue()
    await work.using(tenant="globex").aenqueue()
    await drained(app, slots=1)

    run = ["open session", "session of pool, pool, True", "close session", "close pool"]
    assert seen == ["open pool for acme", *run, "open pool for globex", *run]


async def test_a_dependency_has_the_state_of_the_lifespan(app: App) -> None:
    @app.lifespan
    async def state(_: App) -> AsyncIterator[dict[str, int]]:
        yield {"size": 5}

    def size(ctx: Context[dict[str, int]]) -> int:
        return ctx.state["size"]

    @app.task
    async def work(size: Annotated[int, Depends(size)] = INJECTED) -> int:
        return size

    handle = await work.aenqueue()
    await drained(app)

    assert await handle.result(timeout=LATE) == 5


# -- exceptions ------------------------------------------------------------------------------------


def failing(seen: list[str]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A transaction, and a client inside of it that hides exceptions."""

    def transaction() -> Iterator[str]:
        try:
            yield "transaction"
        except ValueError:
            seen.append("roll back")
            raise
        else:
            seen.append("commit")

    def hiding(_: Annotated[str, Depends(transaction)]) -> Iterator[str]:
        with suppress(ValueError):
            yield "client"
        seen.append("close client")

    return transaction, hiding


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_exception_of_a_handler_reaches_every_dependency_and_cannot_be_hidden(
    app: App, is_async: bool
) -> None:
    seen: list[str] = []
    _, hiding = failing(seen)

    def work(client: Annotated[str, Depends(hiding)] = INJECTED) -> None:
        raise ValueError(client)

    async def awork(client: Annotated[str, Depends(hiding)] = INJECTED) -> None:
        raise ValueError(client)

    handler: Callable[..., Any] = awork if is_async else work
    await app.task(name="work", max_attempts=1)(handler).aenqueue()
    await drained(app)

    assert seen == ["close client", "roll back"]
    assert (await error_of(app)).startswith("ValueError: client")


async def test_an_exception_at_the_end_fails_the_attempt_and_names_the_dependency(app: App) -> None:
    async def commit() -> AsyncIterator[str]:
        yield "session"
        raise ConnectionError("the commit failed")

    @app.task(max_attempts=1)
    async def work(session: Annotated[str, Depends(commit)] = INJECTED) -> None: ...

    await work.aenqueue()
    await drained(app)

    text = await error_of(app)
    assert text.startswith("ConnectionError: the commit failed")
    assert "commit" in text.rpartition("raised by the dependency ")[2]


async def test_an_exception_at_the_start_closes_what_was_open_and_names_the_dependency(app: App) -> None:
    seen: list[str] = []

    def first() -> Iterator[None]:
        try:
            yield
        except PermissionError:
            seen.append("first saw it")
            raise

    def refused() -> None:
        raise PermissionError("no")

    @app.task(max_attempts=1)
    def work(
        a: Annotated[None, Depends(first)] = INJECTED, b: Annotated[None, Depends(refused)] = INJECTED
    ) -> None:
        seen.append("work")

    await work.aenqueue()
    await drained(app)

    assert seen == ["first saw it"]
    assert "refused" in (await error_of(app)).rpartition("raised by the dependency ")[2]


async def test_a_dependency_can_translate_an_exception(app: App) -> None:
    async def translating() -> AsyncIterator[None]:
        try:
            yield
        except LookupError as error:
            raise Fatal("it is gone") from error

    @app.task(max_attempts=5)
    async def work(_: Annotated[None, Depends(translating)] = INJECTED) -> None:
        raise KeyError("x")

    await work.aenqueue()
    await drained(app)

    [task] = await tasks(app)
    assert (task.state, task.attempt) == (State.DEAD, 1)


@pytest.mark.parametrize("why", ["timeout", "cancel"])
async def test_a_handler_that_is_stopped_closes_its_dependencies_before_the_lifespan_ends(
    app: App, why: str
) -> None:
    seen: list[str] = []
    started = asyncio.Event()

    @app.lifespan
    async def pool(_: App) -> AsyncIterator[None]:
        yield
        seen.append("close pool")

    async def session() -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            seen.append("roll back")
            raise
        finally:
            seen.append("close session")

    @app.task(timeout=0.1 if why == "timeout" else None, max_attempts=1)
    async def work(_: Annotated[None, Depends(session)] = INJECTED) -> None:
        started.set()
        await pause(60)

    handle = await work.aenqueue()
    async with working(app):
        await asyncio.wait_for(started.wait(), LATE)
        if why == "cancel":
            await handle.cancel()
        task = await handle.wait(timeout=LATE)

    assert task.state is (State.DEAD if why == "timeout" else State.CANCELLED)
    assert seen == ["roll back", "close session", "close pool"]


# -- child processes -------------------------------------------------------------------------------


async def test_in_a_child_process_dependencies_run_beside_the_handler(log: Path) -> None:
    on_loop = await hooked_tasks.depends.aenqueue()
    blocking = await hooked_tasks.depends_blocking.aenqueue()
    await drained(hooked_tasks.app, processes=1, slots=1)

    assert await on_loop.result(timeout=LATE) is True
    of_state, of_child = await blocking.result(timeout=LATE)
    assert of_state == of_child
    run = ["before", "open", "run", "close", "after"]
    assert lines(log, of_child) == ["enter", *run, *run, "leave"]


# -- payloads and declarations ---------------------------------------------------------------------


async def test_a_dependency_is_not_part_of_the_payload(app: App) -> None:
    @app.task
    async def work(n: int, *, name: Annotated[str, Depends(plain)] = INJECTED) -> str:
        return f"{n} {name}"

    assert work.spec.signature.fields == {"n"}
    assert await work(1, name="called directly") == "1 called directly"
    with pytest.raises(InvalidOption, match="name is passed by the worker; do not enqueue it"):
        await work.aenqueue(1, name="mine")
    assert await tasks(app) == []


def _unknown(size: int) -> int:
    return size


def _one(x: "Annotated[int, Depends(_other)]") -> int:
    return x


def _other(x: Annotated[int, Depends(_one)]) -> int:
    return x


def _unevaluated(x: "Annotated[ForTypeCheckers, Depends(plain)]") -> None: ...


def _default_style(db: Any = Depends(plain)) -> None: ...  # noqa: B008


def _positional(db: Annotated[str, Depends(plain)], /) -> None: ...


@pytest.mark.parametrize(
    ("dependency", "complaint"),
    [
        (_unknown, "_unknown has a parameter 'size' that nobody passes; annotate it with Context or Depends"),
        (_one, "the dependencies form a cycle: .*_one → .*_other → .*_one"),
        (_unevaluated, "an annotation of .*_unevaluated cannot be resolved.*ForTypeCheckers"),
        (_default_style, r"_default_style has db.*; write db: Annotated\[…, Depends\(.*plain\)\] = INJECTED"),
        (_positional, "takes 'db' by position"),
        ("text", "Depends takes a function, not 'text'"),
        (coroutine, "is not async, but the dependency .*coroutine is"),
        (async_generator, "is not async, but the dependency .*async_generator is"),
    ],
)
def test_what_cannot_work_is_refused_when_the_task_is_declared(
    app: App, dependency: Any, complaint: str
) -> None:
    def work(value: Annotated[Any, Depends(dependency)] = INJECTED) -> None: ...

    with pytest.raises(InvalidOption, match=complaint):
        app.task(work)


@pytest.mark.parametrize("handler", [_unevaluated, _default_style, _positional])
def test_the_same_holds_for_the_handler_itself(app: App, handler: Any) -> None:
    with pytest.raises(InvalidOption, match=r"cannot be resolved|write db|by position"):
        app.task(handler)
