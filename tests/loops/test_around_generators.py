"""`@app.around` with generators: they run where the handler runs."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.loops import hooked_tasks
from tests.loops.hooked_log import lines
from tests.loops.workers import drained, error_of
from windlass import App, Backoff, CallNext, Context, Fatal, Task


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=0, jitter=0))


def note_place(app: App, seen: list[Any], name: str = "") -> None:
    @app.around
    def place(ctx: Context) -> Iterator[None]:
        seen.append((name, ctx.task.type.rpartition(".")[2], threading.get_ident()))
        try:
            yield
        except BaseException as error:
            seen.append((name, repr(error), threading.get_ident()))
            raise
        else:
            seen.append((name, "done", threading.get_ident()))


async def test_a_generator_runs_in_the_thread_of_the_handler(app: App) -> None:
    seen: list[Any] = []
    threads: list[int] = []
    note_place(app, seen)

    @app.task(max_attempts=1)
    def in_a_thread() -> None:
        threads.append(threading.get_ident())
        raise ValueError("no")

    @app.task
    async def on_the_loop() -> None:
        threads.append(threading.get_ident())

    await in_a_thread.aenqueue()
    await on_the_loop.aenqueue()
    await drained(app, slots=1)

    there, here = threads
    assert seen == [
        ("", "in_a_thread", there), ("", "ValueError('no')", there),
        ("", "on_the_loop", here), ("", "done", here),
    ]  # fmt: skip
    assert here == threading.get_ident() != there


async def test_async_arounds_are_outside_of_generators_and_both_keep_their_order(app: App) -> None:
    seen: list[Any] = []
    note_place(app, seen, "g1")

    @app.around
    async def outside(ctx: Context, call_next: CallNext) -> None:
        seen.append(("async", "", 0))
        await call_next()
        seen.append(("async", "done", 0))

    note_place(app, seen, "g2")

    @app.task
    def work() -> None: ...

    await work.aenqueue()
    await drained(app)

    assert [name for name, *_ in seen] == ["async", "g1", "g2", "g2", "g1", "async"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_generator_cannot_hide_an_exception_but_can_translate_it(app: App, is_async: bool) -> None:
    seen: list[str] = []

    @app.around
    def outer(ctx: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append("the outer one saw it")
            raise Fatal("translated") from error

    @app.around
    def inner(ctx: Context) -> Iterator[None]:
        with suppress(ValueError):
            yield

    def failing() -> None:
        raise ValueError("boom")

    async def afailing() -> None:
        raise ValueError("boom")

    handler: Callable[..., Any] = afailing if is_async else failing
    await app.task(name="failing")(handler).aenqueue()
    await drained(app)

    text = await error_of(app)
    assert seen == ["the outer one saw it"]
    assert "Fatal: translated" in text
    assert "outer" in text.rpartition("raised by the around ")[2]


async def test_a_generator_runs_in_the_child_process_of_the_handler(log: Path) -> None:
    errors: list[tuple[Task, BaseException]] = []
    hooked_tasks.app.on_error(lambda task, error: errors.append((task, error)))
    try:
        await hooked_tasks.fail.aenqueue()
        await drained(hooked_tasks.app, processes=1)
    finally:
        hooked_tasks.app.hooks.error_hooks.clear()

    assert [str(error) for _, error in errors] == ["boom"]
    assert lines(log) == ["enter", "enter", "before", "failed-boom", "after", "leave", "leave"]
    assert lines(log, os.getpid()) == ["enter", "leave"]
