"""The test harness on a real store: its transactions, and the clock of the test."""

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.servers.postgres import Postgres
from windlass import INJECTED, App, Backoff, Context, InvalidOption, State
from windlass.testing.clock import ManualClock
from windlass.testing.harness import Harness, NewHarness, harness


@pytest.fixture
def app() -> App:
    app = App("sqlite:///not-made-by-this-test.db")

    @app.task(name="ship")
    def ship(order_id: int) -> int:
        return order_id

    @app.task(name="aship")
    async def aship(order_id: int) -> int:
        return order_id

    return app


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def url(postgres_newest: Postgres) -> str:
    return f"{postgres_newest.url}?schema=kit_{uuid4().hex[:12]}"


def send(app: App, within: object | None = None, **options: object) -> None:
    app.sync_client.send("ship", {"order_id": 1}, within=within, **options)  # type: ignore[arg-type]


def test_a_rollback_takes_the_task_with_it(windlass_harness: NewHarness, app: App, file: Path) -> None:
    harness = windlass_harness(app, f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        send(app, connection)
        connection.rollback()
        assert harness.run_until_idle() == 0

        send(app, connection)
        connection.commit()

    assert harness.run_until_idle() == 1
    harness.assert_enqueued("ship", number=1)


def test_postgres_likewise(
    windlass_harness: NewHarness, app: App, url: str, postgres_newest: Postgres
) -> None:
    harness = windlass_harness(app, url)
    with psycopg.connect(postgres_newest.url) as connection:
        send(app, connection)
        connection.rollback()
        assert harness.run_until_idle() == 0

        send(app, connection)
        connection.commit()

    assert harness.run_until_idle() == 1
    check_clock(harness, app)


def test_the_clock_is_the_tests(windlass_harness: NewHarness, app: App, file: Path) -> None:
    check_clock(windlass_harness(app, f"sqlite:///{file}"), app)


def check_clock(harness: Harness, app: App) -> None:
    before = len(harness.tasks("ship", State.COMPLETED))
    send(app, delay="1d")
    assert harness.run_until_idle() == 0

    harness.advance("23h")
    assert harness.run_until_idle() == 0
    harness.advance("1h")
    assert harness.run_until_idle() == 1
    assert len(harness.tasks("ship", State.COMPLETED)) == before + 1
    assert harness.tasks()[-1].finished_at == harness.clock.now()


def test_schedules_and_retries_run_in_their_time(windlass_harness: NewHarness, file: Path) -> None:
    app, ran = App("sqlite:///not-made-by-this-test.db"), []

    @app.task(schedule="0 3 * * *", backoff=Backoff(base=60, factor=1, jitter=0, max_attempts=3))
    def nightly(*, ctx: Context = INJECTED) -> None:
        ran.append((clock.now().strftime("%d %H:%M"), ctx.task.attempt))
        if ctx.task.attempt == 1:
            raise ConnectionError

    clock = ManualClock()
    harness = windlass_harness(app, f"sqlite:///{file}", clock=clock)

    assert harness.run_for("2d", raise_errors=False) == 4
    assert ran == [("01 03:00", 1), ("01 03:01", 2), ("02 03:00", 1), ("02 03:01", 2)]


async def test_an_async_test_on_postgres(windlass_harness: NewHarness, app: App, url: str) -> None:
    harness = windlass_harness(app, url)
    handle = await app.client.send("aship", {"order_id": 7})
    await app.client.send("ship", {"order_id": 8})

    assert await harness.arun_until_idle() == 2
    assert await handle.result() == 7
    await app.client.send("aship", {"order_id": 9}, delay="1h")
    assert await harness.arun_for("1h") == 1
    await app.close()


def test_a_handler_completes_its_task_in_a_transaction(
    windlass_harness: NewHarness, app: App, file: Path
) -> None:
    @app.task(name="pay")
    def pay(*, ctx: Context = INJECTED) -> None:
        assert ctx.once("charged")
        with ctx.transaction() as connection:
            connection.execute("CREATE TABLE paid (task)")

    harness = windlass_harness(app, f"sqlite:///{file}")
    handle = pay.enqueue()

    assert harness.run_until_idle() == 1
    assert handle.state() is State.COMPLETED


def test_a_store_with_tasks_is_refused(app: App, file: Path) -> None:
    with harness(app, f"sqlite:///{file}"):
        send(app)

    before = app.store.inner
    with pytest.raises(InvalidOption, match="has 1 task, which"), harness(app, f"sqlite:///{file}"):
        pass
    assert app.store.inner is before
