"""A connection that a handler had goes to the next one clean, whatever was done to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import psycopg
import pytest

from tests.servers.postgres import DATABASE, USER, Postgres
from windlass._stores.postgres import PostgresStore
from windlass.testing.conformance.steps import a_task, exists


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """With one connection for transactions: whoever comes next gets the one that was used before."""
    store = PostgresStore.from_url(f"{url}&connections=1")
    await store.open()
    yield store
    await store.close()


async def stands(store: PostgresStore) -> bool:
    """Whether what is enqueued in the next transaction is there once it has been left."""
    new = a_task()
    async with store.transaction() as connection:
        await store.join(connection).enqueue([new])
    return await exists(store, new.id)


async def test_after_one_that_was_cancelled_in_the_middle_of_a_statement(store: PostgresStore) -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        async with store.transaction() as connection:
            begun.set()
            await connection.execute("SELECT pg_sleep(60)")

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert await stands(store)


@pytest.mark.parametrize("statement", ["SELECT 1/0", "SELECT nonsense"])
async def test_after_an_error_which_is_the_handlers_own_to_hear(store: PostgresStore, statement: str) -> None:
    with pytest.raises(asyncpg.PostgresError):
        async with store.transaction() as connection:
            await connection.execute(statement)

    assert await stands(store)


async def test_after_the_server_ended_it(store: PostgresStore) -> None:
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        async with store.transaction() as connection:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    assert await stands(store)


async def test_in_a_thread_after_an_error(store: PostgresStore) -> None:
    new = a_task()

    def transact() -> None:
        with suppress(ZeroDivisionError), store.transaction() as connection:
            connection.execute("SELECT 1")
            raise ZeroDivisionError
        with store.transaction() as again:
            assert again is connection
            store.join(again).enqueue([new])

    await asyncio.to_thread(transact)
    assert await exists(store, new.id)


async def test_in_a_thread_after_the_server_ended_it(store: PostgresStore) -> None:
    new = a_task()

    def transact() -> None:
        with store.transaction() as connection:
            pid = connection.info.backend_pid
        with psycopg.connect(store.address.dsn, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        with store.transaction() as again:
            store.join(again).enqueue([new])

    await asyncio.to_thread(transact)
    assert await exists(store, new.id)


async def test_in_a_thread_a_connection_that_became_read_only_is_not_used_again(store: PostgresStore) -> None:
    def transact() -> None:
        with suppress(psycopg.errors.ReadOnlySqlTransaction), store.transaction() as connection:
            connection.execute("SET TRANSACTION READ ONLY")
            connection.execute("CREATE TABLE refused (id integer)")
        with store.transaction() as again:
            assert again is not connection

    await asyncio.to_thread(transact)


async def test_in_a_thread_over_a_socket(postgres15: Postgres, url: str) -> None:
    options = f"user={USER}&host={postgres15.home}&port={postgres15.port}"
    store = PostgresStore.from_url(f"postgresql:///{DATABASE}?{options}&{url.partition('?')[2]}")
    new = a_task()

    def transact() -> None:
        with store.transaction() as connection:
            store.join(connection).enqueue([new])

    await store.open()
    await asyncio.to_thread(transact)
    assert await exists(store, new.id)
    await store.close()
