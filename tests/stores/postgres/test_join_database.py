"""Which database a caller's connection is to: the store's own, or the enqueue is refused. (P9)"""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import create_engine, event

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import QUICK, Postgres
from tests.stores.postgres.callers import AT_ONCE, DRIVERS, Driver
from windlass._stores.postgres import PostgresStore
from windlass.errors import InvalidOption, SchemaMismatch, StoreUnavailable
from windlass.testing.conformance.steps import a_task, complete, enqueue_and_claim, exists, worker_on

EVERY = {**DRIVERS, **{f"{name}-at-once": driver for name, driver in AT_ONCE.items()}}


@pytest.fixture(params=EVERY)
def driver(request: pytest.FixtureRequest) -> Driver:
    return EVERY[request.param]


@pytest.fixture(scope="module")
def database(postgres_newest: Postgres) -> str:
    return postgres_newest.new_database(f"home_{uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def elsewhere(postgres_newest: Postgres) -> str:
    """Another database on the same server."""
    return postgres_newest.new_database(f"elsewhere_{uuid4().hex[:12]}")


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async for opened in opened_on(database):
        yield opened


@pytest.fixture
async def other(elsewhere: str) -> AsyncIterator[PostgresStore]:
    """A store in a schema of the same name in the other database."""
    async for opened in opened_on(elsewhere):
        yield opened


async def opened_on(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore.from_url(url)
    await store.open()
    yield store
    await store.close()


def name_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


async def test_a_connection_to_another_database_is_refused(
    store: PostgresStore, other: PostgresStore, driver: Driver
) -> None:
    new = a_task()
    async with driver(other.address.dsn) as caller:
        with pytest.raises(InvalidOption) as refused:
            await caller.enqueue(store, new)
        await caller.say("SELECT 1")  # its transaction can still be used

    assert type(refused.value) is InvalidOption
    assert name_of(store.address.dsn) in str(refused.value)
    assert name_of(other.address.dsn) in str(refused.value)
    assert not await exists(other, new.id)


async def test_a_connection_to_the_stores_database_is_not(store: PostgresStore, driver: Driver) -> None:
    new = a_task()
    async with driver(store.address.dsn) as caller:
        await caller.enqueue(store, new)
        if driver in DRIVERS.values():
            await caller.commit()

    assert await exists(store, new.id)


async def test_nothing_is_settled_elsewhere(store: PostgresStore, other: PostgresStore) -> None:
    claimed = await enqueue_and_claim(other, await worker_on(other))

    for driver in DRIVERS.values():
        async with driver(other.address.dsn) as caller:
            with pytest.raises(InvalidOption, match="another database"):
                await caller.settle(store, complete(claimed))


async def test_a_database_of_the_same_name_on_another_server(
    store: PostgresStore, postgres15: Postgres
) -> None:
    url = postgres15.new_database(name_of(store.address.dsn))
    async for _ in opened_on(url):
        async with DRIVERS["psycopg"](url) as caller:
            with pytest.raises(InvalidOption) as refused:
                await caller.enqueue(store, a_task())

    assert str(urlsplit(url).port) in str(refused.value)
    assert str(urlsplit(store.address.dsn).port) in str(refused.value)


async def test_a_copy_of_the_stores_database(store: PostgresStore, postgres_newest: Postgres) -> None:
    copy = f"copy_{uuid4().hex[:12]}"
    await store.close()  # nobody may be connected to what is copied
    with psycopg.connect(postgres_newest.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {copy} TEMPLATE {name_of(store.address.dsn)}".encode())

    async with DRIVERS["asyncpg"](store.address.dsn.replace(name_of(store.address.dsn), copy)) as caller:
        with pytest.raises(InvalidOption, match=copy):
            await caller.enqueue(store, a_task())


async def test_a_database_without_the_schema(postgres_newest: Postgres, store: PostgresStore) -> None:
    empty = postgres_newest.new_database(f"empty_{uuid4().hex[:12]}")
    unmade = PostgresStore.from_url(empty)
    for driver in EVERY.values():
        async with driver(empty) as caller:
            with pytest.raises(InvalidOption, match="another database"):
                await caller.enqueue(store, a_task())
            with pytest.raises(SchemaMismatch, match="windlass migrate"):
                await caller.enqueue(unmade, a_task())
            await caller.say("SELECT 1")


# -- through a pooler --------------------------------------------------------------------------------


async def test_a_pooler_in_between_makes_no_difference(
    store: PostgresStore, other: PostgresStore, pgbouncer: PgBouncer
) -> None:
    pooled = PostgresStore.from_url(pgbouncer.url_of(name_of(store.address.dsn)))
    for driver in (DRIVERS["psycopg"], DRIVERS["sqlalchemy-session"], DRIVERS["django"]):
        async with driver(pooled.address.dsn) as caller:
            await caller.enqueue(store, a_task())
            await caller.commit()
        async with driver(store.address.dsn) as caller:
            await caller.enqueue(pooled, a_task())
            await caller.commit()
        async with driver(pgbouncer.url_of(name_of(other.address.dsn))) as caller:
            with pytest.raises(InvalidOption, match=name_of(other.address.dsn)):
                await caller.enqueue(store, a_task())
            with pytest.raises(InvalidOption, match=name_of(other.address.dsn)):
                await caller.enqueue(pooled, a_task())


# -- how it is found out -----------------------------------------------------------------------------


async def test_a_connection_is_checked_once(store: PostgresStore) -> None:
    engine = create_engine(store.address.dsn.replace("postgresql://", "postgresql+psycopg://"))
    statements: list[str] = []
    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", lambda *call: statements.append(call[2]))
        store.layout.mark_fresh()
        store.join(connection).enqueue([a_task()])
        first = len(statements)
        store.join(connection).enqueue([a_task()])
    engine.dispose()
    checks = ["current_database" in sql for sql in statements]

    assert (checks.count(True), checks[first:]) == (2, [False])  # twice, as the store's own was not known yet


async def test_the_server_was_restarted(tmp_path: Path) -> None:
    with Postgres.start(tmp_path, settings=QUICK) as server:
        async for store in opened_on(server.url):
            for _ in range(2):
                async with DRIVERS["psycopg"](server.url) as caller:
                    await caller.enqueue(store, a_task())
                    await caller.commit()
                server.restart()


async def test_the_store_is_out_of_reach(store: PostgresStore) -> None:
    """Then nobody can know whether it is the same database."""
    away = PostgresStore.from_url(store.address.dsn.replace("127.0.0.1", "127.0.0.2"))
    for driver in EVERY.values():
        async with driver(store.address.dsn) as caller:
            with pytest.raises(StoreUnavailable):
                await caller.enqueue(away, a_task())
            await caller.say("SELECT 1")
