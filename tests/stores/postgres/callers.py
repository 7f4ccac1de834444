"""Programs that have a transaction of their own, one for each driver whose connections can be joined."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
from django.db.utils import ConnectionHandler
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.django_settings import configure
from windlass._model.task import Enqueued, NewTask
from windlass._model.verdict import Receipt, Settlement
from windlass._store.protocol import Store

ORDER = "INSERT INTO orders VALUES (1)"


async def done(answer: Any) -> Any:
    """What a driver answers, awaited where it is to be."""
    return await answer if inspect.isawaitable(answer) else answer


class Caller:
    """A program in the middle of its transaction. A driver differs in how a statement is said, if at all."""

    def __init__(self, connection: Any, say: Callable[[str], Any], finish: Any = None) -> None:
        self.connection = connection
        self._say = say
        self._finish = finish or connection

    async def say(self, sql: str) -> Any:
        return await done(self._say(sql))

    async def enqueue(self, store: Store, *batch: NewTask) -> Sequence[Enqueued]:
        answers: Sequence[Enqueued] = await done(store.join(self.connection).enqueue(batch))
        return answers

    async def settle(self, store: Store, *batch: Settlement) -> Sequence[Receipt]:
        receipts: Sequence[Receipt] = (await done(store.join(self.connection).settle(batch))).receipts
        return receipts

    async def commit(self) -> None:
        await done(self._finish.commit())

    async def rollback(self) -> None:
        await done(self._finish.rollback())


class DjangoCaller(Caller):
    """Django refuses to block an event loop, so everything happens in another thread."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, self._execute)

    async def say(self, sql: str) -> Any:
        return await asyncio.to_thread(self._execute, sql)

    async def enqueue(self, store: Store, *batch: NewTask) -> Any:
        return await asyncio.to_thread(lambda: store.join(self.connection).enqueue(batch))

    async def settle(self, store: Store, *batch: Settlement) -> Any:
        return (await asyncio.to_thread(lambda: store.join(self.connection).settle(batch))).receipts

    async def commit(self) -> None:
        await asyncio.to_thread(self.connection.commit)

    async def rollback(self) -> None:
        await asyncio.to_thread(self.connection.rollback)

    def _execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)


# -- in a transaction --------------------------------------------------------------------------------


@asynccontextmanager
async def by_psycopg(dsn: str) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn) as connection:
        yield Caller(connection, connection.execute)


@asynccontextmanager
async def by_psycopg_with_rows_as_dicts(dsn: str) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as connection:
        yield Caller(connection, connection.execute)


@asynccontextmanager
async def by_psycopg_async(dsn: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield Caller(connection, connection.execute)


@asynccontextmanager
async def by_asyncpg(dsn: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, connection.execute, transaction)
    await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(dsn: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction)


@asynccontextmanager
async def by_sqlalchemy(dsn: str) -> AsyncIterator[Caller]:
    engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        yield Caller(connection, lambda sql: connection.execute(text(sql)))
    engine.dispose()


@asynccontextmanager
async def by_sqlalchemy_session(dsn: str) -> AsyncIterator[Caller]:
    engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        yield Caller(session, lambda sql: session.execute(text(sql)))
    engine.dispose()


def by_sqlalchemy_async(driver: str) -> "Driver":
    @asynccontextmanager
    async def caller(dsn: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(dsn.replace("postgresql://", f"postgresql+{driver}://"))
        async with engine.connect() as connection:
            yield Caller(connection, lambda sql: connection.execute(text(sql)))
        await engine.dispose()

    return caller


def by_sqlalchemy_async_session(driver: str) -> "Driver":
    @asynccontextmanager
    async def caller(dsn: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(dsn.replace("postgresql://", f"postgresql+{driver}://"))
        async with AsyncSession(engine) as session:
            yield Caller(session, lambda sql: session.execute(text(sql)))
        await engine.dispose()

    return caller


def by_django(*, binds_at_server: bool = False) -> "Driver":
    @asynccontextmanager
    async def caller(dsn: str) -> AsyncIterator[Caller]:
        connection = django_connection(dsn, binds_at_server=binds_at_server)
        await asyncio.to_thread(connection.set_autocommit, autocommit=False)
        yield DjangoCaller(connection)
        await asyncio.to_thread(connection.close)

    return caller


def django_connection(dsn: str, *, binds_at_server: bool = False) -> Any:
    """A connection as `django.db.connection` stands for."""
    configure()
    address = urlsplit(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": address.path.lstrip("/"),
        "USER": address.username,
        "HOST": address.hostname,
        "PORT": address.port,
        "OPTIONS": {"server_side_binding": binds_at_server},
    }
    connection = ConnectionHandler({"default": database})["default"]
    connection.inc_thread_sharing()
    return connection


Driver = Callable[[str], AbstractAsyncContextManager[Caller]]

DRIVERS: dict[str, Driver] = {
    "psycopg": by_psycopg,
    "psycopg-dicts": by_psycopg_with_rows_as_dicts,
    "psycopg-async": by_psycopg_async,
    "asyncpg": by_asyncpg,
    "asyncpg-pool": by_asyncpg_pool,
    "sqlalchemy": by_sqlalchemy,
    "sqlalchemy-session": by_sqlalchemy_session,
    "sqlalchemy-asyncpg": by_sqlalchemy_async("asyncpg"),
    "sqlalchemy-async-psycopg": by_sqlalchemy_async("psycopg"),
    "sqlalchemy-session-asyncpg": by_sqlalchemy_async_session("asyncpg"),
    "sqlalchemy-session-async-psycopg": by_sqlalchemy_async_session("psycopg"),
    "django": by_django(),
    "django-server-binding": by_django(binds_at_server=True),
}


# -- where every statement is committed by itself ----------------------------------------------------


@asynccontextmanager
async def at_once_by_psycopg(dsn: str) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Caller(connection, connection.execute)


@asynccontextmanager
async def at_once_by_psycopg_async(dsn: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield Caller(connection, connection.execute)


@asynccontextmanager
async def at_once_by_asyncpg(dsn: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(dsn)
    yield Caller(connection, connection.execute)
    await connection.close()


@asynccontextmanager
async def at_once_by_sqlalchemy(dsn: str) -> AsyncIterator[Caller]:
    url = dsn.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield Caller(connection, lambda sql: connection.execute(text(sql)))
    engine.dispose()


@asynccontextmanager
async def at_once_by_sqlalchemy_asyncpg(dsn: str) -> AsyncIterator[Caller]:
    url = dsn.replace("postgresql://", "postgresql+asyncpg://")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        yield Caller(connection, lambda sql: connection.execute(text(sql)))
    await engine.dispose()


@asynccontextmanager
async def at_once_by_django(dsn: str) -> AsyncIterator[Caller]:
    connection = django_connection(dsn)
    yield DjangoCaller(connection)
    await asyncio.to_thread(connection.close)


AT_ONCE: dict[str, Driver] = {
    "psycopg": at_once_by_psycopg,
    "psycopg-async": at_once_by_psycopg_async,
    "asyncpg": at_once_by_asyncpg,
    "sqlalchemy": at_once_by_sqlalchemy,
    "sqlalchemy-asyncpg": at_once_by_sqlalchemy_asyncpg,
    "django": at_once_by_django,
}
