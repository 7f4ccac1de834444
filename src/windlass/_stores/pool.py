"""A connection pool for one event loop: taking and returning a connection costs no round trip and no task.

asyncpg and redis-py have pools of their own, but taking a connection and returning it costs as much as a
quick statement, and a cancellation at the wrong moment loses a connection of redis-py's.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeAlias

Connection: TypeAlias = Any
"""A connection of asyncpg, which has no types, or one with the same `is_closed`, `close` and `terminate`."""

ACQUIRE_SECONDS = 10.0
IDLE_SECONDS = 300.0
_CLOSE_SECONDS = 5.0


class PoolExhausted(ConnectionError):
    """No connection became free in time, so nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            f"timed out after {ACQUIRE_SECONDS:g} s waiting for a free connection of the pool; "
            f"raise connections= in the store's URL"
        )


class Pool:
    """Up to `size` connections, opened as they are needed; the one used last is taken first."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._permits = asyncio.Semaphore(size)
        self._free: deque[tuple[Connection, float]] = deque()  # with the time of their return
        self._lent: dict[Connection, int] = {}  # with their generation
        self._generation = 0
        self.returned = 0  # how often a connection was returned
        self._closing: set[asyncio.Task[None]] = set()
        self.is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether a connection is lent, so that its user may be waiting for a reply."""
        return bool(self._lent)

    async def acquire(self) -> Connection:
        """Take a connection for exclusive use; PoolExhausted if none is free within ACQUIRE_SECONDS."""
        if self._permits.locked():
            try:
                async with asyncio.timeout(ACQUIRE_SECONDS):
                    await self._permits.acquire()
            except TimeoutError:
                raise PoolExhausted from None
        else:
            await self._permits.acquire()
        try:
            connection = self._take_free() or await self._connect()
        except BaseException:
            self._permits.release()
            raise
        self._lent[connection] = self._generation
        return connection

    def _take_free(self) -> Connection | None:
        while self._free:
            connection, _ = self._free.pop()
            if not connection.is_closed():
                return connection
        return None

    def release(self, connection: Connection) -> None:
        """Return a connection. It is not reused if it is broken or was lent before the last `expire`."""
        generation = self._lent.pop(connection)
        self.returned += 1
        self._permits.release()
        if connection.is_closed():
            return
        if self.is_closed or generation != self._generation:
            self._close_soon(connection)
            return
        self._free.append((connection, monotonic()))
        if self._free[0][1] < monotonic() - IDLE_SECONDS:
            self._close_soon(self._free.popleft()[0])

    def forget(self, connection: Connection) -> None:
        """Give up a lent connection; its holder closes it."""
        self._lent.pop(connection)
        self._permits.release()

    def expire(self) -> None:
        """Stop using every connection opened so far: the server restarted or another one is the primary."""
        self._generation += 1
        while self._free:
            self._close_soon(self._free.pop()[0])

    def abandon(self) -> None:
        """Break every connection opened so far, also under those who wait for a reply: another is primary."""
        self._generation += 1
        for connection in [*(one for one, _ in self._free), *self._lent]:
            connection.terminate()
        self._free.clear()

    def _close_soon(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(close(connection, _CLOSE_SECONDS))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def retire(self) -> None:
        """Close all connections, without waiting; those that are lent or asked for when they are returned."""
        self.is_closed = True
        self.expire()

    async def close(self) -> None:
        """Close all connections; those that are lent when they are returned."""
        self.retire()
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_SECONDS * 2)


async def close(connection: Connection, seconds: float) -> None:
    """Close a connection; without a reply within this time, drop it."""
    with suppress(Exception):
        await connection.close(timeout=seconds)
    if not connection.is_closed():
        connection.terminate()
