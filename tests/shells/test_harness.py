"""The test harness for users: the real engine on a memory store, run step by step by the test."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Annotated, Any

import pytest

from tests.loops import hooked_tasks
from windlass import (
    INJECTED,
    RESULT,
    App,
    Backoff,
    CallNext,
    Context,
    Depends,
    InvalidOption,
    Snooze,
    State,
    chain,
)
from windlass.errors import LifespanFailed
from windlass.testing.harness import Harness
from windlass.testing.harness import harness as on_memory

Make = Callable[[App], Harness]


@pytest.fixture
def app() -> App:
    return App("sqlite:///not-made-by-this-test.db")


@pytest.fixture
def harness(windlass_harness: Make, app: App) -> Harness:
    return windlass_harness(app)


def test_due_tasks_run_when_the_test_runs_them(harness: Harness, app: App) -> None:
    @app.task(name="greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    handle = greet.enqueue("ada")
    assert handle.state() is State.READY

    assert harness.run_until_idle() == 1
    assert handle.result() == "hello ada"


def test_the_test_controls_the_clock(harness: Harness, app: App) -> None:
    @app.task(name="later")
    def later() -> None: ...

    handle = later.using(delay="1h").enqueue()
    assert harness.run_until_idle() == 0

    harness.advance("59m")
    assert harness.run_until_idle() == 0

    harness.advance(timedelta(minutes=1))
    assert harness.run_until_idle() == 1
    assert handle.state() is State.COMPLETED


def test_schedules_fire_by_the_tests_clock(harness: Harness, app: App) -> None:
    @app.task(name="tick", schedule="10m")
    def tick() -> None: ...

    before = harness.run_until_idle()
    harness.advance("10m")

    assert [before, harness.run_until_idle(), harness.run_until_idle()] == [0, 1, 0]


def test_a_schedule_begins_without_a_run_before(harness: Harness, app: App) -> None:
    @app.task(name="tick", schedule="10m")
    def tick() -> None: ...

    harness.advance("10m")

    assert harness.run_until_idle() == 1


def test_every_tick_on_the_way_is_fired(harness: Harness, app: App) -> None:
    @app.task(name="tick", schedule="10m")
    def tick() -> None: ...

    app.schedule("hourly", tick, "0 * * * *")
    began = harness.clock.now()

    harness.advance("1h")

    assert harness.clock.now() - began == timedelta(hours=1)
    assert [task.created_at - began for task in harness.tasks(tick)] == [
        *(timedelta(minutes=number) for number in (10, 20, 30, 40, 50)),
        *[timedelta(minutes=60)] * 2,
    ]
    assert harness.run_until_idle() == 7


def test_a_paused_schedule_does_not_fire(harness: Harness, app: App) -> None:
    @app.task(name="tick", schedule="10m")
    def tick() -> None: ...

    app.setup()
    app.sync_operator.schedules.pause("tick")
    harness.advance("1h")

    assert harness.tasks(tick) == []


def test_too_many_ticks_are_refused(harness: Harness, app: App) -> None:
    @app.task(name="tick", schedule="1s")
    def tick() -> None: ...

    with pytest.raises(AssertionError, match=r"more than 10,000 ticks .* pause"):
        harness.advance("30d")


async def test_the_clock_is_advanced_in_an_event_loop_too(harness: Harness, app: App) -> None:
    @app.task(name="tick", schedule="10m")
    async def tick() -> None: ...

    harness.advance("30m")

    assert await harness.arun_until_idle() == 3


def test_the_exception_of_a_handler_is_raised(harness: Harness, app: App) -> None:
    class OutOfStock(Exception):
        pass

    @app.task(name="order")
    def order(item: str) -> None:
        raise OutOfStock(item)

    order.enqueue(item="rope")

    with pytest.raises(OutOfStock, match="rope"):
        harness.run_until_idle()


def test_an_exception_is_raised_alike_from_a_thread_and_from_the_loop(harness: Harness, app: App) -> None:
    @app.task(name="loop")
    async def in_loop() -> None:
        raise KeyError("loop")

    in_loop.enqueue()

    with pytest.raises(KeyError, match="loop"):
        harness.run_until_idle()


def test_unless_raised_errors_are_retried_and_buried_as_in_production(harness: Harness, app: App) -> None:
    @app.task(name="fails", backoff=Backoff(base=10, jitter=0, max_attempts=2))
    async def fails(*, ctx: Context = INJECTED) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    fails.enqueue()
    harness.run_until_idle(raise_errors=False)
    assert [task.state for task in harness.tasks(fails)] == [State.SCHEDULED]

    harness.advance(10)
    harness.run_until_idle(raise_errors=False)
    (dead,) = harness.tasks(fails, State.DEAD)
    assert dead.error is not None
    assert dead.error.message == "attempt 2"


def test_a_snooze_is_not_an_error(harness: Harness, app: App) -> None:
    @app.task(name="patient")
    async def patient() -> None:
        raise Snooze(60)

    patient.enqueue()

    assert harness.run_until_idle() == 1
    assert [task.attempt for task in harness.tasks(patient, State.SCHEDULED)] == [0]


def test_chained_tasks_run_too(harness: Harness, app: App) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    first = app.sync_client.enqueue(chain(double.step(n=1), double.step(n=RESULT), double.step(n=RESULT)))

    assert harness.run_until_idle() == 3
    assert [task.result for task in harness.tasks(double)] == [b"2", b"4", b"8"]
    assert {task.root for task in harness.tasks()} == {first.id}


def test_every_queue_is_served(harness: Harness, app: App) -> None:
    @app.task(name="anywhere")
    async def anywhere() -> None: ...

    anywhere.using(queue="elsewhere").enqueue()

    assert harness.run_until_idle() == 1


def test_a_paused_queue_stays_as_it_is(harness: Harness, app: App) -> None:
    @app.task(name="held")
    async def held() -> None: ...

    app.sync_operator.pause("default")
    held.enqueue()

    assert harness.run_until_idle() == 0
    assert [task.state for task in harness.tasks()] == [State.READY]


async def test_a_test_with_a_loop_awaits_it(harness: Harness, app: App) -> None:
    @app.task(name="plain")
    async def plain() -> int:
        return 1

    handle = await plain.aenqueue()

    assert await harness.arun_until_idle() == 1
    assert await handle.result() == 1


def test_the_store_of_the_app_is_restored(app: App) -> None:
    before = app.store.inner

    with on_memory(app):
        assert app.store.inner is not before

    assert app.store.inner is before


def test_a_handler_called_without_a_worker_explains_the_missing_context() -> None:
    with pytest.raises(AttributeError, match="no worker runs this"):
        _ = INJECTED.attempt


# -- what runs around handlers -------------------------------------------------------------------------


def _database() -> str:
    return "production"


def _settings(database: Annotated[str, Depends(_database)]) -> str:
    return f"settings of {database}"


def hooked() -> tuple[App, list[str], Any]:
    app = App("memory://")
    seen: list[str] = []

    @app.lifespan
    async def state(_: App) -> AsyncIterator[str]:
        seen.append("enter")
        yield "state"
        seen.append("leave")

    @app.around
    async def watching(ctx: Context, call_next: CallNext) -> None:
        seen.append(f"around with {ctx.state}")
        await call_next()

    @app.task
    def work(follow: bool, settings: Annotated[str, Depends(_settings)] = INJECTED) -> None:
        seen.append(settings)
        if follow:
            work.using(delay=0).enqueue(follow=False)

    return app, seen, work


def test_lifespans_run_once_for_all_rounds_and_arounds_and_dependencies_as_in_a_worker() -> None:
    app, seen, work = hooked()
    with on_memory(app) as h:
        work.enqueue(follow=True)
        assert h.run_until_idle() == 2

    run = ["around with state", "settings of production"]
    assert seen == ["enter", *run, *run, "leave"]


def test_a_dependency_is_overridden_until_the_end_of_the_harness() -> None:
    app, seen, work = hooked()

    def name() -> str:
        return "test"

    def database(name: Annotated[str, Depends(name)]) -> Iterator[str]:
        yield f"the {name} database"

    with on_memory(app) as h:
        h.override(_database, database)
        work.enqueue(follow=False)
        h.run_until_idle()
    with on_memory(app) as h:
        work.enqueue(follow=False)
        h.run_until_idle()

    assert seen[2:3] + seen[6:7] == ["settings of the test database", "settings of production"]


async def _async_database() -> str:
    return "async"


def test_an_override_that_cannot_work_is_refused() -> None:
    app, _, _ = hooked()
    with on_memory(app) as h:
        with pytest.raises(InvalidOption, match=r"no task type of this app depends on .*_async_database"):
            h.override(_async_database, _database)
        with pytest.raises(InvalidOption, match=r"is not async, but the dependency .*_async_database is"):
            h.override(_database, _async_database)
    with on_memory(hooked_tasks.app) as h, pytest.raises(InvalidOption, match="runs in a child process"):
        h.override(hooked_tasks.open_pid, lambda: 7)


def test_a_lifespan_that_fails_is_raised() -> None:
    app = App("memory://")

    @app.lifespan
    async def broken(_: App) -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    with on_memory(app) as h, pytest.raises(LifespanFailed, match="no database"):
        h.run_until_idle()
