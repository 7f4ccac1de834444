"""Wake-ups: workers LISTEN while they wait for tasks, and producers NOTIFY only while some worker does.

NOTIFY serialises commits, so producers use it only if the table `listener` has the row of an idle worker. A
worker registers there when a claim came up short, and unregisters after a while of full claims. Having
registered it claims once more, because tasks enqueued before that sent no notification.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from ..._ids import new_id
from ..._model.lease import Claim
from ..._model.state import State
from ..._store.protocol import Wake
from ..._timers import Timer, wait_for_event
from ..listeners import Listener, Listeners
from .connection.client import Connections
from .script import Query
from .statements import in_schema, statement

logger = logging.getLogger("windlass.postgres")

SOON = timedelta(seconds=1.5)
"""Tasks due sooner than this wake the keeper, which otherwise looks about once a second."""

REGISTERED_SECONDS = 30.0
"""How long a registration lasts unless it is renewed."""

_RENEW_SECONDS = 10.0
_REPLY_SECONDS = 5.0  # without a reply to a renewal the connection is given up
_BUSY_SECONDS = 0.1  # of full claims after which a worker unregisters
_RECHECK_SECONDS = 0.05  # An enqueue that was running during the registration has committed by then.
_FIRST_BACKOFF, _MAX_BACKOFF = 0.1, 5.0
_STABLE_SECONDS = 3.0  # a connection must have lasted for the back-off to start over
_POLL_SECONDS = 0.3
_LOG_FAILURE_AFTER = 10.0  # seconds without a connection while claims succeed
_LOG_AGAIN_AFTER = 600.0

_SCHEDULED = ""
"""The payload, and the entry in the table `listener`, for a task that is due soon. Others are queues."""


class Wakes:
    """The wake-ups that a transaction sends: queues with new ready tasks, and whether a task is due soon."""

    def __init__(self, now: datetime) -> None:
        self._soon = now + SOON
        self._payloads: set[str] = set()

    def add(self, state: State, queue: str, run_at: datetime) -> None:
        """Add what a task in this state needs, if anything."""
        if state is State.READY:
            self._payloads.add(queue)
        elif state is State.SCHEDULED and run_at < self._soon:
            self._payloads.add(_SCHEDULED)

    def __bool__(self) -> bool:
        return bool(self._payloads)

    def payloads(self) -> list[str]:
        """Return the parameter of wake.sql."""
        return sorted(self._payloads)

    def clear(self) -> None:
        self._payloads.clear()


class WakeHub:
    """Listens on one connection for all listeners of an event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._channel = in_schema("windlass.wake", connections.address.schema)
        self._id = new_id()
        self._listeners = Listeners()
        self._listening: asyncio.Task[None] | None = None
        self._connection: Any = None
        self._broken = asyncio.Event()  # The connection has ended, or may have.
        self._idle = False  # The row in the table is to name our queues.
        self._writing: asyncio.Task[None] | None = None
        self._version = 0  # of what the row is to say
        self._registered: frozenset[str] | None = None  # the queues that the row names, if there is one
        self._busy_since: float | None = None
        self._recheck = Timer(self._listeners.wake_every_queue)
        self._failure: tuple[float, Exception] | None = None  # when the connection was lost, and why
        self._store_works = asyncio.Event()  # a claim succeeded while there was no connection
        self._moves = 0  # of the primary, when the connection was made
        self._hastened = False  # since the connection was lost, it has been set already

    @asynccontextmanager
    async def listen(self, queues: Sequence[str]) -> AsyncIterator[Listener]:
        listener = Listener(queues)
        self._listeners.add(listener)
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen_for_ever())
        elif self._idle and not listener.queues <= (self._registered or frozenset()):
            self._start_writing(idle=True)
        elif listener.queues:
            listener.add(Wake.READY)  # tasks enqueued before it listened have woken others
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
            if not self._listeners:
                await self.close()

    async def close(self) -> None:
        self._recheck.cancel()
        self._listeners.close()
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await listening

    def hint_in(self, seconds: float) -> None:
        """Hint at a claim after this time, when a rate limit lets a task start."""
        self._recheck.at(asyncio.get_running_loop().time() + seconds)

    # -- registration --------------------------------------------------------------------------------

    def note_claim(self, claim: Claim, claimed: int, began: float) -> None:
        """Take into account what a claim got that began at a time of `monotonic`."""
        self._listeners.note_claim(claim, claimed, began)
        if self._connection is None:
            self._note_claim_without_connection()
            return
        if self._moves != self._connections.moves:
            self._broken.set()  # to another host than the primary, which may be silent for long
            return
        if claimed < claim.limit:
            self._busy_since = None
            if not self._idle:
                self._start_writing(idle=True)
            return
        now = monotonic()
        if self._busy_since is None:
            self._busy_since = now
        elif self._idle and now - self._busy_since > _BUSY_SECONDS:
            self._start_writing(idle=False)

    def _note_claim_without_connection(self) -> None:
        """The store works: reconnect at once, the first time; if that does not help for a while, log it.

        If claims do not succeed, the store itself is not available, which workers log.
        """
        if not self._hastened:
            self._hastened = True
            self._store_works.set()
        if self._failure is not None and monotonic() - self._failure[0] > _LOG_FAILURE_AFTER:
            logger.warning("no connection for wake-ups, only polling; retrying: %r", self._failure[1])
            self._failure = (monotonic() + _LOG_AGAIN_AFTER, self._failure[1])

    def _start_writing(self, *, idle: bool) -> None:
        """Bring the table up to date. Only one task writes, as a connection runs one statement at a time."""
        self._idle = idle
        self._version += 1
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_until_current())

    async def _finish_writing(self, *, idle: bool) -> None:
        self._start_writing(idle=idle)
        if self._writing is not None:
            await self._writing

    async def _write_until_current(self) -> None:
        """Write the row, again if it changed meanwhile."""
        while (connection := self._connection) is not None:
            version = self._version
            queues = frozenset(self._listeners.queues) if self._idle else frozenset()
            try:
                await self._write(connection, queues)
            except Exception as error:  # noqa: BLE001 - after any error the connection cannot be relied on
                logger.debug("could not write to the table of listeners: %r", error)
                if connection is not self._connection:
                    continue  # There is a new one by now.
                self._broken.set()
                return
            before, self._registered = self._registered, queues
            if before is None or not queues <= before:
                self._listeners.wake_every_queue()
                asyncio.get_running_loop().call_later(_RECHECK_SECONDS, self._listeners.wake_every_queue)
            if version == self._version:
                return

    async def _write(self, connection: Any, queues: frozenset[str]) -> None:
        sql = statement("listen", self._connections.address.schema)
        row = [_SCHEDULED, *sorted(queues)]
        await connection.execute(sql, self._id, row, REGISTERED_SECONDS, timeout=_REPLY_SECONDS)

    # -- connection ----------------------------------------------------------------------------------

    async def _listen_for_ever(self) -> None:
        """Listen until cancelled; reconnect with back-off, and hint to all listeners then."""
        backoff = _FIRST_BACKOFF
        while True:
            began = monotonic()
            try:
                if self._connections.is_pooled and self._connections.address.listen is None:
                    await self._poll()
                else:
                    async with self._connected() as connection:
                        await self._renew(connection)
            except Exception as error:  # noqa: BLE001 - without it nobody would notice that wake-ups stopped
                logger.debug("lost the connection for wake-ups; reconnecting: %r", error)
                self._failure = self._failure or (monotonic(), error)
            if monotonic() - began > _STABLE_SECONDS:
                backoff = _FIRST_BACKOFF
            self._store_works.clear()
            if await wait_for_event(self._store_works, backoff * (0.5 + random.random())):
                backoff = _FIRST_BACKOFF
            else:
                backoff = min(backoff * 2, _MAX_BACKOFF)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        connection = await self._connections.for_listening()
        try:
            self._broken = asyncio.Event()
            connection.add_termination_listener(self._on_termination)
            await connection.add_listener(self._channel, self._on_notification)
            self._connection, self._registered = connection, None
            self._failure, self._hastened = None, False
            self._moves = self._connections.moves
            await self._finish_writing(idle=True)
            yield connection
        finally:
            self._connection = None
            await self._disconnect(connection)

    async def _disconnect(self, connection: Any) -> None:
        """Delete our row if the connection still works, and close it."""
        if not connection.is_closed() and not self._broken.is_set():
            with suppress(Exception):
                async with asyncio.timeout(1.0):
                    await connection.execute(
                        statement("unlisten", self._connections.address.schema), self._id
                    )
        with suppress(Exception):
            await connection.close(timeout=1.0)

    def _on_termination(self, connection: Any) -> None:
        if connection is self._connection:
            self._broken.set()

    async def _renew(self, connection: Any) -> None:
        """Renew our row from time to time, which also shows whether the connection works."""
        while not connection.is_closed() and not self._broken.is_set():
            if await wait_for_event(self._broken, _RENEW_SECONDS * (0.8 + 0.4 * random.random())):
                break
            await self._finish_writing(idle=self._idle)
        raise ConnectionError("the connection has ended")

    async def _poll(self) -> None:
        """Poll, behind a pooler through which LISTEN does not work."""
        seen: object = None
        while True:
            await asyncio.sleep(_POLL_SECONDS * (0.5 + random.random()))
            ((ready, next_at),) = await self._connections.fetch(
                Query("poll", (sorted(self._listeners.queues),))
            )
            for queue in ready or ():
                self._listeners.wake(queue)
            if next_at is not None and next_at != seen:
                self._listeners.wake_keepers()
            seen = next_at

    # -- hints ---------------------------------------------------------------------------------------

    def _on_notification(self, connection: Any, pid: int, channel: str, payload: str) -> None:  # noqa: ARG002
        if payload == _SCHEDULED:
            self._listeners.wake_keepers()
        else:
            self._listeners.wake(payload)
