"""Join the caller's transaction: find the driver of a connection, and enqueue and settle on it.

If a transaction is open the tasks become part of it, and a refusal undoes only the enqueue. On a connection
in autocommit a batch is enqueued at once, all of it or nothing.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

from ...._model.task import Enqueued, NewTask
from ...._model.verdict import Receipt, Settlement
from ...._store.protocol import Join
from ....errors import NotSupported
from ..queue_layout import Environment
from ..script import Ask, Script, play, play_blocking
from ..statements import statement
from . import transaction
from .transaction import AsyncCallerConnection, CallerConnection, translated_errors

T = TypeVar("T")

_SUPPORTED = (
    "a psycopg 3 Connection or AsyncConnection, an asyncpg Connection, a SQLAlchemy 2 Connection, Session, "
    "AsyncConnection or AsyncSession, or Django's connection to Postgres"
)


def join(connection: object, env: Environment) -> Join:
    """Join the transaction on this connection, which is not used yet; NotSupported for an unknown driver."""
    # By name, because only the driver of this connection is certain to be installed.
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(connection).__mro__}
    for known, make in _JOINS.items():
        if known in kinds:
            return make(connection, env)
    raise NotSupported(
        f"PostgresStore cannot join a transaction of type {type(connection).__module__}."
        f"{type(connection).__name__}; pass {_SUPPORTED}"
    )


class BlockingJoin:
    """A transaction on a blocking connection."""

    def __init__(self, connect: Callable[[], CallerConnection], env: Environment) -> None:
        self._connect = connect
        self._env = env

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Insert the batch within the transaction."""
        return self._play(lambda connection: transaction.enqueue(connection, self._env, batch))

    def settle(self, batch: Sequence[Settlement]) -> Sequence[Receipt]:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        return self._play(lambda connection: transaction.settle(connection, self._env, batch))

    def _play(self, make: Callable[[CallerConnection], Script[T]]) -> T:
        schema = self._env.schema
        with translated_errors():
            connection = self._connect()
            return play_blocking(
                make(connection), lambda ask: connection.fetch(_text(ask, schema), ask.parameters)
            )


class AsyncJoin:
    """A transaction on an async connection."""

    def __init__(self, connection: AsyncCallerConnection, env: Environment) -> None:
        self._connection = connection
        self._env = env

    def enqueue(self, batch: Sequence[NewTask]) -> Awaitable[Sequence[Enqueued]]:
        """Insert the batch within the transaction."""
        return Deferred(lambda: self._play(transaction.enqueue(self._connection, self._env, batch)))

    def settle(self, batch: Sequence[Settlement]) -> Awaitable[Sequence[Receipt]]:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        return Deferred(lambda: self._play(transaction.settle(self._connection, self._env, batch)))

    async def _play(self, script: Script[T]) -> T:
        schema, connection = self._env.schema, self._connection
        with translated_errors():
            return await play(script, lambda ask: connection.fetch(_text(ask, schema), ask.parameters))


class GreenletJoin:
    """A transaction of SQLAlchemy's async API, which runs blocking code in a greenlet."""

    def __init__(self, connection: Any, connect: Callable[[Any], CallerConnection], env: Environment) -> None:
        self._connection = connection
        self._connect = connect
        self._env = env

    def enqueue(self, batch: Sequence[NewTask]) -> Awaitable[Sequence[Enqueued]]:
        """Insert the batch within the transaction."""
        return Deferred(lambda: self._run(lambda blocking: blocking.enqueue(batch)))

    def settle(self, batch: Sequence[Settlement]) -> Awaitable[Sequence[Receipt]]:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        return Deferred(lambda: self._run(lambda blocking: blocking.settle(batch)))

    async def _run(self, work: Callable[[BlockingJoin], T]) -> T:
        with translated_errors():
            result: T = await self._connection.run_sync(
                lambda inner: work(BlockingJoin(lambda: self._connect(inner), self._env))
            )
            return result


class Deferred(Generic[T]):
    """A coroutine that is made when it is awaited: one that never is causes no warning."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, T]:
        return self._make().__await__()


def _text(ask: Ask, schema: str) -> str:
    return ask.sql or statement(ask.name, schema)


# -- drivers -----------------------------------------------------------------------------------------


def _psycopg(connection: Any, env: Environment) -> Join:
    from .psycopg import Connection  # noqa: PLC0415

    return BlockingJoin(lambda: Connection(connection), env)


def _psycopg_async(connection: Any, env: Environment) -> Join:
    from .psycopg import AsyncConnection  # noqa: PLC0415

    return AsyncJoin(AsyncConnection(connection), env)


def _asyncpg(connection: Any, env: Environment) -> Join:
    from .asyncpg import Connection  # noqa: PLC0415

    return AsyncJoin(Connection(connection), env)


def _sqlalchemy(connection: Any, env: Environment) -> Join:
    from .sqlalchemy import Connection  # noqa: PLC0415

    return BlockingJoin(lambda: Connection(connection), env)


def _sqlalchemy_session(session: Any, env: Environment) -> Join:
    from .sqlalchemy import Connection  # noqa: PLC0415

    return BlockingJoin(lambda: Connection(session.connection()), env)


def _sqlalchemy_async(connection: Any, env: Environment) -> Join:
    from .sqlalchemy import Connection  # noqa: PLC0415

    return GreenletJoin(connection, Connection, env)


def _sqlalchemy_async_session(session: Any, env: Environment) -> Join:
    from .sqlalchemy import Connection  # noqa: PLC0415

    return GreenletJoin(session, lambda inner: Connection(inner.connection()), env)


def _django(connection: Any, env: Environment) -> Join:
    from .django import Connection  # noqa: PLC0415

    if connection.vendor != "postgresql":
        raise NotSupported(f"this Django connection is to {connection.vendor}, not to Postgres")
    return BlockingJoin(lambda: Connection(connection), env)


_JOINS: dict[tuple[str, str], Callable[[Any, Environment], Join]] = {
    ("psycopg", "Connection"): _psycopg,
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("sqlalchemy", "Session"): _sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): _sqlalchemy_session,
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy_async,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy_async_session,
    ("sqlalchemy", "async_scoped_session"): lambda scoped, env: join(scoped(), env),
    ("django", "BaseDatabaseWrapper"): _django,
    ("django", "ConnectionProxy"): _django,
}
