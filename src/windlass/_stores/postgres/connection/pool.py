"""The connections of one event loop: taken, used and given back without a round trip or a task in between.

asyncpg has a pool of its own, but to take from it and give back costs as much as a quick statement.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeAlias

Connection: TypeAlias = Any
"""An asyncpg connection; asyncpg has no types."""

ACQUIRE_SECONDS = 10.0
IDLE_SECONDS = 300.0
_CLOSE_SECONDS = 5.0


class Pool:
    """Up to so many connections, made as they are needed, the last one used first."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._room = asyncio.Semaphore(size)
        self._free: deque[tuple[Connection, float]] = deque()  # and since when
        self._lent: dict[Connection, int] = {}  # to the generation that it is of
        self._generation = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def acquire(self) -> Connection:
        """A connection that nobody else uses; TimeoutError if none is given back in time."""
        if self._room.locked():
            async with asyncio.timeout(ACQUIRE_SECONDS):
                await self._room.acquire()
        else:
            await self._room.acquire()
        try:
            connection = self._take_free() or await self._connect()
        except BaseException:
            self._room.release()
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
        """Give it back. One that is broken, or has been declared old, is not used again."""
        generation = self._lent.pop(connection)
        self._room.release()
        if connection.is_closed():
            return
        if self._closed or generation != self._generation:
            self._end(connection)
            return
        self._free.append((connection, monotonic()))
        if self._free[0][1] < monotonic() - IDLE_SECONDS:
            self._end(self._free.popleft()[0])

    def forget(self, connection: Connection) -> None:
        """It will not be given back: its holder sees to its end."""
        self._lent.pop(connection)
        self._room.release()

    def expire(self) -> None:
        """The server was restarted, or another is the primary now: whatever there is, is of no use."""
        self._generation += 1
        while self._free:
            self._end(self._free.pop()[0])

    def _end(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(end(connection))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Close all; those that are lent, when they are given back."""
        self._closed = True
        self.expire()
        if self._ending:
            await asyncio.wait(self._ending, timeout=_CLOSE_SECONDS * 2)


async def end(connection: Connection) -> None:
    """Close a connection, politely if the server answers."""
    with suppress(Exception):
        await connection.close(timeout=_CLOSE_SECONDS)
    if not connection.is_closed():
        connection.terminate()
