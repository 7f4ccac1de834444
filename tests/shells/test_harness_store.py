"""Code that enqueues in a transaction of its own, under the test harness."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.servers.postgres import Postgres
from tests.stores.postgres.callers import DRIVERS
from windlass import INJECTED, App, Context, State
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.join.detect import AsyncJoin
from windlass.errors import DuplicateTask, InvalidOption, NotSupported
from windlass.testing.conformance.steps import a_task
from windlass.testing.harness import Harness
from windlass.testing.harness_store import HarnessStore


@pytest.fixture
def app() -> App:
    return App("sqlite:///not-made-by-this-test.db")


@pytest.fixture
def harness(windlass_harness: Callable[[App], Harness], app: App) -> Harness:
    return windlass_harness(app)


def test_a_task_of_a_transaction_is_enqueued_at_once(harness: Harness, app: App) -> None:
    """A memory store cannot tell whether the transaction is committed."""

    @app.task(name="ship")
    def ship(order_id: int) -> None: ...

    with closing(sqlite3.connect(":memory:")) as connection:
        handle = ship.using(within=connection).enqueue(order_id=1)
        ship.using(within=connection).enqueue_many([{"order_id": 2}, {"order_id": 3}])
        connection.rollback()

    assert harness.run_until_idle() == 3
    assert handle.state() is State.COMPLETED


async def test_an_async_connection_is_awaited_as_in_production(harness: Harness, app: App) -> None:
    @app.task(name="ship")
    async def ship(order_id: int) -> None: ...

    engine = create_async_engine("postgresql+asyncpg://nobody@nowhere/nothing")
    async with AsyncSession(engine) as session:
        handle = await ship.using(within=session).aenqueue(order_id=1)
        with pytest.raises(InvalidOption, match="aenqueue"):
            ship.using(within=session).enqueue(order_id=2)
    await engine.dispose()

    assert handle.created
    assert len(harness.tasks(ship)) == 1


async def test_every_driver_is_awaited_as_on_postgres(postgres_newest: Postgres) -> None:
    real, stand_in = PostgresStore.from_url(postgres_newest.url), HarnessStore()
    for name, driver in DRIVERS.items():
        async with driver(postgres_newest.url) as caller:
            in_production = isinstance(real.join(caller.connection), AsyncJoin)
            enqueued = stand_in.join(caller.connection).enqueue([a_task()])
            assert isinstance(enqueued, Awaitable) is in_production, name


def test_refusals_are_those_of_any_enqueue(harness: Harness, app: App) -> None:
    @app.task(name="once", unique=True)
    def once() -> None: ...

    with closing(sqlite3.connect(":memory:")) as connection:
        once.using(within=connection).enqueue()
        with pytest.raises(DuplicateTask):
            once.using(within=connection).enqueue()


def test_what_is_no_connection_is_refused(harness: Harness, app: App) -> None:
    @app.task(name="ship")
    def ship() -> None: ...

    with pytest.raises(NotSupported, match=r"builtins\.str"):
        ship.using(within="sqlite:///shop.db").enqueue()
    assert harness.tasks(ship) == []


def test_a_handler_with_a_transaction_is_told_what_it_needs(harness: Harness, app: App) -> None:
    @app.task(name="pay")
    def pay(*, ctx: Context = INJECTED) -> None:
        with ctx.transaction():
            pass

    pay.enqueue()

    with pytest.raises(NotSupported, match="sqlite:///"):
        harness.run_until_idle()
