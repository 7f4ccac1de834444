"""Enqueueing and settling on the caller's own connection, inside his transaction. (P9, D15)

With a transaction open the tasks become part of it, and a refusal undoes the enqueue alone. On a connection
that commits every statement by itself the tasks stand at once, all of a batch or none.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

from ...._model.task import Enqueued, NewTask
from ...._model.verdict import Receipt, Settlement
from ...._store.protocol import Join
from ....errors import NotSupported
from ..enqueue.plain import Terms
from ..script import Script
from . import within
from .within import Lent, LentAsync

T = TypeVar("T")

_SUPPORTED = (
    "a psycopg 3 Connection or AsyncConnection, an asyncpg Connection, a SQLAlchemy 2 Connection, Session, "
    "AsyncConnection or AsyncSession, or Django's connection to Postgres"
)


def join(connection: object, terms: Terms) -> Join:
    """The caller's transaction on this connection, which is not touched yet."""
    # By name: only the driver whose connection was passed is sure to be installed.
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(connection).__mro__}
    for known, make in _JOINS.items():
        if known in kinds:
            return make(connection, terms)
    raise NotSupported(
        f"PostgresStore cannot enqueue within a {type(connection).__module__}.{type(connection).__name__}; "
        f"pass {_SUPPORTED}"
    )


class BlockingJoin:
    """A transaction on a connection that blocks."""

    def __init__(self, lend: Callable[[], Lent], terms: Terms) -> None:
        self._lend = lend
        self._terms = terms

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Insert the batch within the transaction."""
        return self._play(lambda lent: within.enqueue(lent, self._terms, batch))

    def settle(self, batch: Sequence[Settlement]) -> Sequence[Receipt]:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        return self._play(lambda lent: within.settle(lent, self._terms, batch))

    def _play(self, make: Callable[[Lent], Script[T]]) -> T:
        with within.told():
            lent = self._lend()
            return within.play_blocking(make(lent), lent, self._terms.schema)


class AwaitedJoin:
    """A transaction on a connection that is awaited."""

    def __init__(self, lent: LentAsync, terms: Terms) -> None:
        self._lent = lent
        self._terms = terms

    def enqueue(self, batch: Sequence[NewTask]) -> Awaitable[Sequence[Enqueued]]:
        """Insert the batch within the transaction."""
        return Later(lambda: self._play(within.enqueue(self._lent, self._terms, batch)))

    def settle(self, batch: Sequence[Settlement]) -> Awaitable[Sequence[Receipt]]:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        return Later(lambda: self._play(within.settle(self._lent, self._terms, batch)))

    async def _play(self, script: Script[T]) -> T:
        with within.told():
            return await within.play(script, self._lent, self._terms.schema)


class SteppingJoin:
    """A transaction of SQLAlchemy's async half, which awaits on behalf of code that blocks."""

    def __init__(self, connection: Any, lend: Callable[[Any], Lent], terms: Terms) -> None:
        self._connection = connection
        self._lend = lend
        self._terms = terms

    def enqueue(self, batch: Sequence[NewTask]) -> Awaitable[Sequence[Enqueued]]:
        """Insert the batch within the transaction."""
        return Later(lambda: self._step(lambda blocking: blocking.enqueue(batch)))

    def settle(self, batch: Sequence[Settlement]) -> Awaitable[Sequence[Receipt]]:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        return Later(lambda: self._step(lambda blocking: blocking.settle(batch)))

    async def _step(self, work: Callable[[BlockingJoin], T]) -> T:
        with within.told():
            answer: T = await self._connection.run_sync(
                lambda inner: work(BlockingJoin(lambda: self._lend(inner), self._terms))
            )
            return answer


class Later(Generic[T]):
    """A coroutine that is not made until it is awaited: one that never is leaves no warning behind."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, T]:
        return self._make().__await__()


# -- who is who --------------------------------------------------------------------------------------


def _psycopg(connection: Any, terms: Terms) -> Join:
    from .psycopg import Lent  # noqa: PLC0415

    return BlockingJoin(lambda: Lent(connection), terms)


def _psycopg_async(connection: Any, terms: Terms) -> Join:
    from .psycopg import LentAsync  # noqa: PLC0415

    return AwaitedJoin(LentAsync(connection), terms)


def _asyncpg(connection: Any, terms: Terms) -> Join:
    from .asyncpg import Lent  # noqa: PLC0415

    return AwaitedJoin(Lent(connection), terms)


def _sqlalchemy(connection: Any, terms: Terms) -> Join:
    from .sqlalchemy import Lent  # noqa: PLC0415

    return BlockingJoin(lambda: Lent(connection), terms)


def _sqlalchemy_session(session: Any, terms: Terms) -> Join:
    from .sqlalchemy import Lent  # noqa: PLC0415

    return BlockingJoin(lambda: Lent(session.connection()), terms)


def _sqlalchemy_async(connection: Any, terms: Terms) -> Join:
    from .sqlalchemy import Lent  # noqa: PLC0415

    return SteppingJoin(connection, Lent, terms)


def _sqlalchemy_async_session(session: Any, terms: Terms) -> Join:
    from .sqlalchemy import Lent  # noqa: PLC0415

    return SteppingJoin(session, lambda inner: Lent(inner.connection()), terms)


def _django(connection: Any, terms: Terms) -> Join:
    from .django import Lent  # noqa: PLC0415

    if connection.vendor != "postgresql":
        raise NotSupported(f"this connection of Django's is to {connection.vendor}")
    return BlockingJoin(lambda: Lent(connection), terms)


_JOINS: dict[tuple[str, str], Callable[[Any, Terms], Join]] = {
    ("psycopg", "Connection"): _psycopg,
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("sqlalchemy", "Session"): _sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): _sqlalchemy_session,
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy_async,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy_async_session,
    ("sqlalchemy", "async_scoped_session"): lambda scoped, terms: join(scoped(), terms),
    ("django", "BaseDatabaseWrapper"): _django,
    ("django", "ConnectionProxy"): _django,
}
