"""A transaction on a connection of our own, for a handler's writes and its task's end together. (D15)

In an event loop it is asyncpg's, in a thread psycopg's. The connections are apart from those that claim and
settle, so that handlers that keep one for a while hold up nobody; and they have the server's own settings:
the statements on them are mostly not ours.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any

from ...errors import NotSupported, StoreUnavailable
from .connection.address import Address
from .connection.client import CONNECT_SECONDS, Connections
from .errors import translate

MAX_IDLE_SECONDS = 60
"""How long a block may do nothing: then the server ends it, for it keeps vacuum from its work."""

_NO_PSYCOPG = (
    "ctx.transaction() in a handler that blocks needs the driver psycopg: pip install 'windlass[psycopg]', "
    "or make the handler async"
)


class Blocking:
    """psycopg connections of one handle, kept from one transaction to the next."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._free: deque[Any] = deque(maxlen=address.connections)

    def take(self) -> Any:
        """A connection that nobody else uses."""
        with self._lock:
            while self._free:
                connection = self._free.pop()
                if not connection.closed:
                    return connection
        try:
            import psycopg  # noqa: PLC0415  an extra
        except ModuleNotFoundError as missing:
            raise NotSupported(_NO_PSYCOPG) from missing
        with told_blocking(self._address.place):
            return psycopg.connect(
                self._address.dsn,
                connect_timeout=int(CONNECT_SECONDS),
                application_name="windlass",
                prepare_threshold=None,  # A pooler may give every transaction another connection.
                target_session_attrs="read-write",
            )

    def give_back(self, connection: Any) -> None:
        """Keep it for the next, if it is sound and nothing is left open on it."""
        with self._lock:
            is_clean = not connection.closed and connection.info.transaction_status.name == "IDLE"
            if is_clean and len(self._free) < self._address.connections:
                self._free.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            free, self._free = self._free, deque(maxlen=self._address.connections)
        for connection in free:
            connection.close()

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections, without touching them."""
        self._lock = threading.Lock()
        _inherited.append(self._free)
        self._free = deque(maxlen=self._address.connections)


_inherited: list[Any] = []
"""Never freed: closing them would end the parent's connections."""


@contextmanager
def told_blocking(place: str) -> Iterator[None]:
    """Raise what psycopg raises in our words."""
    import psycopg  # noqa: PLC0415  an extra

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, place) from error


class OwnTransaction:
    """`async with` or `with`, once."""

    def __init__(self, connections: Connections, blocking: Blocking) -> None:
        self._connections = connections
        self._blocking = blocking
        self._stack = AsyncExitStack()
        self._connection: Any = None

    # -- in an event loop ----------------------------------------------------------------------------

    async def __aenter__(self) -> Any:
        with self._connections.told():
            connection = await self._stack.enter_async_context(self._connections.one())
            try:
                await self._stack.enter_async_context(self._connections.transaction(connection))
                await connection.execute(_SET_IDLE)
            except BaseException as error:
                await self._stack.__aexit__(type(error), error, error.__traceback__)
                raise
            return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # They hear of what went wrong, so that no connection is kept that something is still under way on.
        with self._connections.told():
            await self._stack.__aexit__(kind, error, trace)

    # -- in a thread ---------------------------------------------------------------------------------

    def __enter__(self) -> Any:
        self._connection = self._blocking.take()
        place = self._connections.address.place
        try:
            with told_blocking(place):
                self._connection.execute(_SET_IDLE)  # Begins it, too.
        except StoreUnavailable:
            # It had been kept too long, and broke meanwhile: a fresh one tells how things are.
            self._connection.close()
            self._blocking.close()
            self._connection = self._blocking.take()
            with told_blocking(place):
                self._connection.execute(_SET_IDLE)
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                with told_blocking(self._connections.address.place):
                    self._connection.commit()
            else:
                with suppress(Exception):
                    self._connection.rollback()
        finally:
            self._blocking.give_back(self._connection)


_SET_IDLE = f"SET LOCAL idle_in_transaction_session_timeout = '{MAX_IDLE_SECONDS}s'"
