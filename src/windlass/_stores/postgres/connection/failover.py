"""Notice that another host has become the primary, while the last one is silent.

A primary that is cut off from the network, or a frozen machine, closes no connection: statements would wait
until the kernel gives up, long after a standby was promoted. So while nothing has been answered for a
moment, the other hosts are asked whether one of them takes writes.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ...pool import Connection, Pool

_LOOK_SECONDS = 0.5


class FailoverWatch:
    """Watches one pool from its event loop. A timer, not a task: loops may end without closing the pool."""

    def __init__(self, pool: Pool, connect_elsewhere: Callable[[], Awaitable[Connection]]) -> None:
        self._pool = pool
        self._connect_elsewhere = connect_elsewhere
        self._seen = -1  # how many connections had been returned at the last look
        self._probing: asyncio.Task[None] | None = None
        self._schedule()

    def _schedule(self) -> None:
        seconds = _LOOK_SECONDS * (0.75 + random.random() / 2)
        asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if self._pool.is_closed:
            return
        is_silent = self._pool.is_waiting and self._pool.returned == self._seen
        if is_silent and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())
        self._seen = self._pool.returned
        self._schedule()

    async def _probe(self) -> None:
        with suppress(Exception):  # no other host takes writes: the silent one may still be the primary
            connection = await self._connect_elsewhere()
            connection.terminate()
            self._pool.abandon()
