"""Inline mode of the harness: tasks run where they are enqueued."""

import asyncio
import contextvars
import sqlite3
import threading
from contextlib import closing

import pytest

from windlass import RESULT, App, Backoff, InvalidOption, State, chain
from windlass.testing.harness import NewHarness, harness


@pytest.fixture
def app() -> App:
    return App("sqlite:///not-made-by-this-test.db")


def thread_id() -> int:
    return threading.get_ident()


def test_inline_tasks_run_before_enqueue_returns(windlass_harness: NewHarness, app: App) -> None:
    kit = windlass_harness(app, inline=True)
    ran: list[tuple[str, int]] = []
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(7)

    @app.task(name="outer")
    def outer() -> str:
        ran.append(("outer", threading.get_ident()))
        inner.enqueue()
        ran.append(("end of outer", variable.get()))
        return "done"

    inner = app.task(name="inner", process=True)(thread_id)
    handle = outer.enqueue()

    here = threading.get_ident()
    assert ran == [("outer", here), ("end of outer", 7)]
    assert handle.result() == "done"
    (task,) = kit.assert_enqueued(inner)
    assert task.result == str(here).encode()


def test_inline_chains_and_within(windlass_harness: NewHarness, app: App) -> None:
    windlass_harness(app, inline=True)

    @app.task(name="one")
    def one() -> int:
        return 1

    @app.task(name="add")
    async def add(number: int) -> int:
        return number + 1

    with closing(sqlite3.connect(":memory:")) as connection:
        steps = chain(one.step(), add.step(number=RESULT))
        handle = app.sync_client.enqueue(steps, within=connection)

    assert app.sync_client.get(handle.following[-1]).result() == 2


async def test_inline_async_handlers_run_on_the_callers_loop(windlass_harness: NewHarness, app: App) -> None:
    windlass_harness(app, inline=True)
    loops = []

    @app.task(name="here")
    async def here(again: bool) -> None:
        loops.append(asyncio.get_running_loop())
        if again:
            await here.aenqueue(again=False)

    handle = await here.aenqueue(again=True)

    assert loops == [asyncio.get_running_loop()] * 2
    assert await handle.state() is State.COMPLETED


def test_inline_errors_are_raised_by_enqueue(windlass_harness: NewHarness, app: App) -> None:
    kit = windlass_harness(app, inline=True)

    @app.task(name="fail", backoff=Backoff(base=60, jitter=0, max_attempts=2))
    def fail() -> None:
        raise ValueError("no such user")

    with pytest.raises(ValueError, match="no such user"):
        fail.enqueue()
    (task,) = kit.tasks(fail, State.SCHEDULED)
    assert task.attempt == 1

    with pytest.raises(ValueError, match="no such user"):
        kit.run_for("1h")
    assert kit.tasks(fail, State.DEAD)


def test_inline_ends_with_the_harness(windlass_harness: NewHarness, app: App) -> None:
    client, sync_client = app.client, app.sync_client
    with harness(app, inline=True):
        assert app.sync_client is not sync_client

    assert (app.client, app.sync_client) == (client, sync_client)


def test_inline_needs_tasks_in_memory(windlass_harness: NewHarness, app: App) -> None:
    with pytest.raises(InvalidOption, match="inline tasks run before your transaction commits"):
        windlass_harness(app, "sqlite:///shop.db", inline=True)


def test_a_schedule_without_overlap_fires_at_every_tick(windlass_harness: NewHarness, app: App) -> None:
    @app.task(name="sweep")
    def sweep() -> None: ...

    app.schedule("sweep", sweep, "10m", overlap="skip")
    kit = windlass_harness(app)

    assert kit.run_for("1h") == 6
