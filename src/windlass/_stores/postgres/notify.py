"""Wake-ups: LISTEN while somebody waits, and NOTIFY only while somebody does.

Notifying makes commits wait for each other, so producers do it only where the table `listener` names somebody
who has nothing to do. A worker is named there once a claim came up short, and no more once it has been busy
for a while. Then it looks once again: what was enqueued before its name stood there notified nobody.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

from ..._ids import new_id
from ..._store.protocol import Wake
from ..._timers import Timer, wait_for_event
from .connection.client import Connections
from .script import Ask
from .statements import in_schema, statement

logger = logging.getLogger("windlass.postgres")

NAMED_FOR = 30.0  # seconds that a listener's name stands unless it is renewed
_PING = 10.0
_ANSWER = 5.0  # seconds within which a ping is answered, or the connection is given up
_BUSY = 0.1  # seconds of full claims after which a worker is not waiting any more
_ONCE_MORE = 0.05  # an enqueue that was under way while the name was written has committed by then
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 5.0
_STOOD = 3.0  # seconds that a line has stood for it to be mended at once when it breaks
_POLL = 0.3


class Listener:
    """One who waits: for which queues, and the hints that have come in."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = frozenset(queues)
        self._hints: set[Wake] = set()
        self._changed = asyncio.Event()

    def hint(self, wake: Wake) -> None:
        """Several at once become one."""
        self._hints.add(wake)
        self._changed.set()

    async def hints(self) -> list[Wake]:
        """What has come in, as soon as something has."""
        await self._changed.wait()
        self._changed.clear()
        hints, self._hints = sorted(self._hints), set()
        return hints


class Switchboard:
    """Listens for all who wait on one event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._channel = in_schema("windlass.wake", connections.address.schema)
        self._name = new_id()
        self._listeners: set[Listener] = set()
        self._line: asyncio.Task[None] | None = None
        self._connection: Any = None
        self._broken = asyncio.Event()  # the connection has ended, or is not to be trusted any more
        self._named = False
        self._naming: asyncio.Task[None] | None = None
        self._changes = 0  # of what the table is to say
        self._stands = False  # our name, in the table
        self._busy_since: float | None = None
        self._look = Timer(self._hint_all)

    @asynccontextmanager
    async def listen(self, queues: Sequence[str]) -> AsyncIterator[Listener]:
        """Be one who waits."""
        listener = Listener(queues)
        self._listeners.add(listener)
        if self._line is None or self._line.done():
            self._line = asyncio.create_task(self._hold_line())
        elif self._named:
            self._stands = False  # for other queues it does, so far
            self._start_naming(named=True)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners:
                await self.close()

    async def close(self) -> None:
        """Stop listening."""
        self._look.cancel()
        line, self._line = self._line, None
        if line is not None:
            line.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await line

    def look_in(self, seconds: float) -> None:
        """Time alone will let something start: then a look is worth while."""
        self._look.at(asyncio.get_running_loop().time() + seconds)

    # -- how busy we are -----------------------------------------------------------------------------

    def came_up(self, *, short: bool) -> None:
        """A claim was answered: with less than it asked for, or in full."""
        if self._connection is None:
            return
        if short:
            self._busy_since = None
            if not self._named:
                self._start_naming(named=True)
            return
        now = monotonic()
        if self._busy_since is None:
            self._busy_since = now
        elif self._named and now - self._busy_since > _BUSY:
            self._start_naming(named=False)

    def _start_naming(self, *, named: bool) -> None:
        """See to it that the table says so. One task at a time writes: a connection can do only one thing."""
        self._named = named
        self._changes += 1
        if self._naming is None or self._naming.done():
            self._naming = asyncio.create_task(self._write_names())

    async def _finish_naming(self, *, named: bool) -> None:
        self._start_naming(named=named)
        if self._naming is not None:
            await self._naming

    async def _write_names(self) -> None:
        """Bring the table up to date with what we are; it may change on the way."""
        while (connection := self._connection) is not None:
            changes, named, stood = self._changes, self._named, self._stands
            self._stands = named
            try:
                await self._write_name(connection, named=named)
            except Exception as error:  # noqa: BLE001 - whatever it was, the line is not to be trusted
                logger.debug("a listener's name was not written: %r", error)
                if connection is not self._connection:
                    continue  # there is another by now
                self._broken.set()
                return
            if named and not stood:
                self._hint_all()
                asyncio.get_running_loop().call_later(_ONCE_MORE, self._hint_all)
            if changes == self._changes:
                return

    async def _write_name(self, connection: Any, *, named: bool) -> None:
        queues = sorted({queue for listener in self._listeners for queue in listener.queues}) if named else []
        sql = statement("listen", self._connections.address.schema)
        await connection.execute(sql, self._name, ["", *queues], NAMED_FOR, timeout=_ANSWER)

    # -- the line ------------------------------------------------------------------------------------

    async def _hold_line(self) -> None:
        """Listen until nobody waits any more. A line that breaks is mended, and everybody looks then."""
        pause = _FIRST_PAUSE
        while True:
            began = monotonic()
            try:
                if self._connections.is_pooled and self._connections.address.listen is None:
                    await self._poll()
                else:
                    async with self._one_line() as connection:
                        await self._keep_up(connection)
            except Exception as error:  # noqa: BLE001 - nobody would notice if nobody listened any more
                logger.warning("listening for wake-ups was interrupted, trying again: %r", error)
            if monotonic() - began > _STOOD:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 2, _LAST_PAUSE)

    @asynccontextmanager
    async def _one_line(self) -> AsyncIterator[Any]:
        connection = await self._connections.for_listening()
        try:
            self._broken = asyncio.Event()
            connection.add_termination_listener(self._on_end)
            await connection.add_listener(self._channel, self._on_notice)
            self._connection, self._stands = connection, False
            await self._finish_naming(named=True)
            yield connection
        finally:
            self._connection = None
            await self._hang_up(connection)

    async def _hang_up(self, connection: Any) -> None:
        """Take our name off the table, if that can be done at all, and let the connection go."""
        if not connection.is_closed() and not self._broken.is_set():
            with suppress(Exception):
                async with asyncio.timeout(1.0):
                    await connection.execute(
                        statement("unlisten", self._connections.address.schema), self._name
                    )
        with suppress(Exception):
            await connection.close(timeout=1.0)

    def _on_end(self, connection: Any) -> None:
        if connection is self._connection:
            self._broken.set()

    async def _keep_up(self, connection: Any) -> None:
        """Renew our name, which also tells whether the line still stands."""
        while not connection.is_closed() and not self._broken.is_set():
            if await wait_for_event(self._broken, _PING * (0.8 + 0.4 * random.random())):
                break
            await self._finish_naming(named=self._named)
        raise ConnectionError("the connection has ended")

    async def _poll(self) -> None:
        """Behind a pooler, and with no other way round it: look, now and then."""
        seen: object = None
        while True:
            await asyncio.sleep(_POLL * (0.5 + random.random()))
            queues = sorted({queue for listener in self._listeners for queue in listener.queues})
            ((ready, next_at),) = await self._connections.fetch(Ask("look", (queues,)))
            for listener in self._listeners:
                if not listener.queues.isdisjoint(ready or ()):
                    listener.hint(Wake.READY)
                if next_at is not None and next_at != seen:
                    listener.hint(Wake.SCHEDULED)
            seen = next_at

    # -- hints ---------------------------------------------------------------------------------------

    def _on_notice(self, connection: Any, pid: int, channel: str, payload: str) -> None:  # noqa: ARG002
        for listener in self._listeners:
            if not payload:
                listener.hint(Wake.SCHEDULED)
            elif payload in listener.queues:
                listener.hint(Wake.READY)

    def _hint_all(self) -> None:
        for listener in self._listeners:
            for wake in Wake:
                listener.hint(wake)
