"""Join the caller's transaction: find the driver of a connection, and enqueue and settle on it.

If a transaction is open the tasks become part of it, and a refusal undoes only the enqueue. On a connection
in autocommit a batch is enqueued at once, all of it or nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ...._model.task import Enqueued, NewTask
from ...._model.verdict import Settled, Settlement
from ...._store.protocol import Join
from ....errors import NotSupported
from ..queue_layout import Environment
from ..script import Script, play, play_blocking
from . import transaction
from .errors import translated_errors
from .home import Elsewhere, HomeDatabase, refused_elsewhere
from .transaction import AsyncCallerConnection, CallerConnection, JoinedConnection

T = TypeVar("T")

_SUPPORTED = (
    "a psycopg 3 Connection or AsyncConnection, an asyncpg Connection, a SQLAlchemy 2 Connection, Session, "
    "AsyncConnection or AsyncSession, or Django's connection to Postgres"
)


def join(connection: object, env: Environment, home: HomeDatabase) -> Join:
    """Join the transaction on this connection, which is not used yet; NotSupported for an unknown driver."""
    # By name, because only the driver of this connection is certain to be installed.
    for kind in type(connection).__mro__:
        joined = _join_driver(kind.__module__.partition(".")[0], kind.__name__, connection, env, home)
        if joined is not None:
            return joined
    raise NotSupported(
        f"PostgresStore cannot join a transaction of type {type(connection).__module__}."
        f"{type(connection).__name__}; pass {_SUPPORTED}"
    )


def _join_driver(package: str, kind: str, given: Any, env: Environment, home: HomeDatabase) -> Join | None:
    match package, kind:
        case "psycopg", "Connection":
            from .psycopg import Connection as Psycopg  # noqa: PLC0415

            return BlockingJoin(lambda: Psycopg(given), env, home)
        case "psycopg", "AsyncConnection":
            from .psycopg import AsyncConnection  # noqa: PLC0415

            return DriverJoin(AsyncConnection(given), env, home)
        case "asyncpg", "Connection" | "PoolConnectionProxy":
            from .asyncpg import Connection as Asyncpg  # noqa: PLC0415

            return DriverJoin(Asyncpg(given), env, home)
        case "sqlalchemy", _:
            return _join_sqlalchemy(kind, given, env, home)
        case "django", "BaseDatabaseWrapper" | "ConnectionProxy":
            from .django import Connection as Django  # noqa: PLC0415

            if given.vendor != "postgresql":
                raise NotSupported(f"this Django connection is to {given.vendor}, not to Postgres")
            return BlockingJoin(lambda: Django(given), env, home)
        case _:
            return None


def _join_sqlalchemy(kind: str, given: Any, env: Environment, home: HomeDatabase) -> Join | None:
    from .sqlalchemy import Connection  # noqa: PLC0415

    match kind:
        case "Connection":
            return BlockingJoin(lambda: Connection(given), env, home)
        case "Session" | "scoped_session":
            return BlockingJoin(lambda: Connection(given.connection()), env, home)
        case "AsyncConnection":
            return GreenletJoin(given, Connection, env, home)
        case "AsyncSession":
            return GreenletJoin(given, lambda inner: Connection(inner.connection()), env, home)
        case "async_scoped_session":
            return join(given(), env, home)
        case _:
            return None


class BlockingJoin:
    """A transaction on a blocking connection."""

    def __init__(self, connect: Callable[[], CallerConnection], env: Environment, home: HomeDatabase) -> None:
        self._connect = connect
        self._env = env
        self._home = home

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        return self._play(lambda joined: transaction.enqueue(joined, self._env, self._home, batch))

    def settle(self, batch: Sequence[Settlement]) -> Settled:
        return self._play(lambda joined: transaction.settle(joined, self._env, self._home, batch))

    def _play(self, make: Callable[[JoinedConnection], Script[T]]) -> T:
        with suppress(Elsewhere):
            return self.play_once(make)
        self._home.ask_blocking()
        with refused_elsewhere():
            return self.play_once(make)

    def play_once(self, make: Callable[[JoinedConnection], Script[T]]) -> T:
        schema = self._env.schema
        with translated_errors():
            connection = self._connect()
            return play_blocking(
                make(connection), lambda query: connection.fetch(query.text(schema), query.parameters)
            )


class AsyncJoin(ABC):
    """A transaction whose verbs are awaited."""

    def __init__(self, env: Environment, home: HomeDatabase) -> None:
        self._env = env
        self._home = home

    def enqueue(self, batch: Sequence[NewTask]) -> Awaitable[Sequence[Enqueued]]:
        return Deferred(
            lambda: self._play(lambda joined: transaction.enqueue(joined, self._env, self._home, batch))
        )

    def settle(self, batch: Sequence[Settlement]) -> Awaitable[Settled]:
        return Deferred(
            lambda: self._play(lambda joined: transaction.settle(joined, self._env, self._home, batch))
        )

    async def _play(self, make: Callable[[JoinedConnection], Script[T]]) -> T:
        with suppress(Elsewhere):
            return await self._play_once(make)
        await self._home.ask()
        with refused_elsewhere():
            return await self._play_once(make)

    @abstractmethod
    async def _play_once(self, make: Callable[[JoinedConnection], Script[T]]) -> T: ...


class DriverJoin(AsyncJoin):
    """A transaction on a connection of an async driver."""

    def __init__(self, connection: AsyncCallerConnection, env: Environment, home: HomeDatabase) -> None:
        super().__init__(env, home)
        self._connection = connection

    async def _play_once(self, make: Callable[[JoinedConnection], Script[T]]) -> T:
        schema, connection = self._env.schema, self._connection
        with translated_errors():
            return await play(
                make(connection), lambda query: connection.fetch(query.text(schema), query.parameters)
            )


class GreenletJoin(AsyncJoin):
    """A transaction of SQLAlchemy's async API, which runs blocking code in a greenlet."""

    def __init__(
        self,
        connection: Any,
        connect: Callable[[Any], CallerConnection],
        env: Environment,
        home: HomeDatabase,
    ) -> None:
        super().__init__(env, home)
        self._connection = connection
        self._connect = connect

    async def _play_once(self, make: Callable[[JoinedConnection], Script[T]]) -> T:
        with translated_errors():
            result: T = await self._connection.run_sync(lambda inner: self._blocking(inner).play_once(make))
            return result

    def _blocking(self, inner: Any) -> BlockingJoin:
        return BlockingJoin(lambda: self._connect(inner), self._env, self._home)


class Deferred(Generic[T]):
    """A coroutine that is made when it is awaited: one that never is causes no warning."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, T]:
        return self._make().__await__()
