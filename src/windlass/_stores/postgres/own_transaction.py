"""ctx.transaction(): a handler's writes and its task's end in one transaction on a connection of the store's.

In an event loop the connection is asyncpg's, in a thread psycopg's. Claims and settlements use other
connections, so handlers that keep one long delay no others; and these have the server's own settings, as
most statements on them are the handler's.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any

from ...errors import NotSupported, StoreUnavailable
from ..forks import never_free
from .connection.address import Address
from .connection.client import Connections
from .connection.hosts import CONNECT_SECONDS, DEAD_PEER_SECONDS, each_host
from .errors import means_reconnect, translate

MAX_IDLE_SECONDS = 60
"""Seconds a transaction may be idle before the server ends it; while open it holds up vacuum."""

_NO_PSYCOPG = (
    "ctx.transaction() in a sync handler needs the driver psycopg: pip install 'windlass[psycopg]', "
    "or make the handler async"
)


class PsycopgPool:
    """The store's psycopg connections, kept from one transaction to the next."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._free: deque[Any] = deque(maxlen=address.connections)
        # For each host, one after the other; libpq takes no less than two.
        self._connect_seconds = max(int(CONNECT_SECONDS) // len(each_host(address.dsn)), 2)

    def take(self) -> Any:
        """Take a connection for exclusive use, opening one if none is free."""
        with self._lock:
            while self._free:
                connection = self._free.pop()
                if not connection.closed:
                    return connection
        try:
            import psycopg  # noqa: PLC0415  an extra
        except ModuleNotFoundError as missing:
            raise NotSupported(_NO_PSYCOPG) from missing
        with translated_psycopg_errors(self._address.display):
            return psycopg.connect(
                self._address.dsn,
                connect_timeout=self._connect_seconds,
                application_name="windlass",
                prepare_threshold=None,  # Behind a pooler each transaction may get another connection.
                target_session_attrs="read-write",
                tcp_user_timeout=DEAD_PEER_SECONDS * 1000,
                keepalives_idle=DEAD_PEER_SECONDS // 3,
                keepalives_interval=DEAD_PEER_SECONDS // 3,
                keepalives_count=2,
            )

    def give_back(self, connection: Any) -> None:
        """Keep the connection for the next transaction if it works and no transaction is open on it."""
        with self._lock:
            is_clean = not connection.closed and connection.info.transaction_status.name == "IDLE"
            if is_clean and len(self._free) < self._address.connections:
                self._free.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, deque(maxlen=self._address.connections)
        for connection in free:
            connection.close()

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        self._lock = threading.Lock()
        never_free(self._free)
        self._free = deque(maxlen=self._address.connections)


@contextmanager
def translated_psycopg_errors(address: str) -> Iterator[None]:
    """Raise windlass's errors in place of psycopg's."""
    import psycopg  # noqa: PLC0415  an extra

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, address) from error


class OwnTransaction:
    """A transaction to use once, by `async with` or by `with`; yields the driver's connection."""

    def __init__(self, connections: Connections, blocking: PsycopgPool) -> None:
        self._connections = connections
        self._blocking = blocking
        self._stack = AsyncExitStack()
        self._connection: Any = None

    # -- in an event loop ----------------------------------------------------------------------------

    async def __aenter__(self) -> Any:
        with self._connections.translated_errors():
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
        # Passing the error on makes the pool drop a connection on which a statement may still be running.
        with self._connections.translated_errors():
            await self._stack.__aexit__(kind, error, trace)

    # -- in a thread ---------------------------------------------------------------------------------

    def __enter__(self) -> Any:
        self._connection = self._blocking.take()
        address = self._connections.address.display
        try:
            with translated_psycopg_errors(address):
                self._connection.execute(_SET_IDLE)  # Also begins the transaction.
        except StoreUnavailable:
            # The kept connection broke while it was idle; only if a new one fails too is the server down.
            self._connection.close()
            self._blocking.close()
            self._connection = self._blocking.take()
            with translated_psycopg_errors(address):
                self._connection.execute(_SET_IDLE)
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                with translated_psycopg_errors(self._connections.address.display):
                    self._connection.commit()
            else:
                with suppress(Exception):
                    self._connection.rollback()
                if error is not None and means_reconnect(error):
                    self._connection.close()
        finally:
            self._blocking.give_back(self._connection)


_SET_IDLE = f"SET LOCAL idle_in_transaction_session_timeout = '{MAX_IDLE_SECONDS}s'"
