"""Connections for threads without an event loop: the same requests, by blocking sockets.

Their methods are coroutines that never wait for an event loop, so that the store's code serves both: run
without one, it does not suspend.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from ...pool import ACQUIRE_SECONDS, PoolExhausted
from .address import Address
from .link import (
    CONNECT_SECONDS,
    INCOMPLETE,
    Command,
    closed,
    new_reader,
    options_of,
    packed,
    refuse,
)

REPLY_SECONDS = 30.0
"""Time to send a request, and silence after which a connection is given up."""

_READ_BYTES = 1 << 16
_CHECK_SECONDS = 1.0  # An idle connection is checked before it is used again.


class SocketLink:
    """A connection to a server, for one request at a time."""

    def __init__(self, connection: Any) -> None:
        """Use `SocketLink.open`."""
        self._connection = connection
        self._socket = connection._sock  # noqa: SLF001  redis-py has no name for it
        self._socket.settimeout(REPLY_SECONDS)
        self._reader = new_reader()
        self._used_at = monotonic()

    @classmethod
    async def open(cls, address: Address, host: str, port: int) -> "SocketLink":
        """Connect. Raises the driver's errors."""
        kind: Any = SSLConnection if address.tls else Connection
        options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": CONNECT_SECONDS}
        connection = kind(**options_of(address, host, port) | options)
        connection.connect()
        return cls(connection)

    async def request(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and read a reply to each; errors of the server are replies. Raises if it is lost."""
        try:
            self._socket.sendall(packed(commands))
            return [refuse(self._reply()) for _ in commands]
        except BaseException:
            self.terminate()
            raise

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is INCOMPLETE:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise closed()
            self._reader.feed(data)
        return reply

    # -- for the pool --------------------------------------------------------------------------------

    def is_closed(self) -> bool:
        """Whether it can no longer be used. The server may have closed it while it was idle."""
        if self._connection is None:
            return True
        now = monotonic()
        if now - self._used_at > _CHECK_SECONDS:
            try:
                is_closed = self._connection.can_read(timeout=0)
            except Exception:  # noqa: BLE001  It is closed.
                is_closed = True
            if is_closed:
                self.terminate()
        self._used_at = now
        return self._connection is None

    def terminate(self) -> None:
        """Close it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.disconnect()


class SocketPool:
    """Up to `size` connections, opened as they are needed; the one used last is taken first."""

    def __init__(self, connect: Callable[[], Awaitable[SocketLink]], size: int) -> None:
        self._connect = connect
        self._permits: SimpleQueue[None] = SimpleQueue()  # quicker than a semaphore
        for _ in range(size):
            self._permits.put(None)
        self._free: deque[SocketLink] = deque()
        self._closed = False

    async def acquire(self) -> SocketLink:
        """Take a connection for exclusive use; PoolExhausted if none is free within ACQUIRE_SECONDS."""
        try:
            self._permits.get(timeout=ACQUIRE_SECONDS)
        except Empty:
            raise PoolExhausted from None
        try:
            while self._free:
                with suppress(IndexError):  # Another thread may have taken it.
                    if not (link := self._free.pop()).is_closed():
                        return link
            return await self._connect()
        except BaseException:
            self._permits.put(None)
            raise

    def release(self, link: SocketLink) -> None:
        """Return a connection."""
        if not link.is_closed():
            self._free.append(link)
        self._permits.put(None)
        if self._closed:
            self.retire()

    def retire(self) -> None:
        """Close all connections; those that are lent when they are returned."""
        self._closed = True
        with suppress(IndexError):
            while True:
                self._free.pop().terminate()

    async def close(self) -> None:
        """Do the same."""
        self.retire()
