"""Wakes: one subscription per handle and event loop, and the listeners that share it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import uniform

from ..._store.protocol import Wake
from ..._timers import Timer
from ...errors import StoreError
from .connection.client import Client

_RECONNECT_SECONDS = (0.1, 2.0)  # first and longest pause
_CANCEL_SECONDS = 0.5


class WakeHub:
    """The listeners of one handle in one event loop."""

    def __init__(self, client: Client, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._listeners: set[_Listener] = set()
        self._reading: asyncio.Task[None] | None = None
        self._later = Timer(lambda: self._tell("r"))  # when a rate limit or a window lets more start

    def wake_in(self, seconds: float) -> None:
        """Tell all listeners after this time that tasks may be claimed."""
        self._later.at(asyncio.get_running_loop().time() + seconds)

    async def listen(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield hints about these queues."""
        listener = _Listener(frozenset(queues))
        self._listeners.add(listener)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read())
        try:
            while True:
                await listener.changed.wait()
                listener.changed.clear()
                for wake in sorted(listener.hints):
                    listener.hints.discard(wake)
                    yield wake
        finally:
            self._listeners.discard(listener)
            if not self._listeners:
                await self.close()

    async def close(self) -> None:
        """Stop listening."""
        self._later.cancel()
        reading, self._reading = self._reading, None
        while reading is not None and not reading.done():
            reading.cancel()  # Again: a cancellation while it connects can get lost in the driver.
            await asyncio.wait([reading], timeout=_CANCEL_SECONDS)

    async def _read(self) -> None:
        """Receive messages; connect again after a failure, and then wake everyone, as some were missed."""
        pause, longest = _RECONNECT_SECONDS
        while True:
            try:
                link = await self._client.subscribe(self._channel, lambda data: self._tell(data.decode()))
                try:
                    pause = _RECONNECT_SECONDS[0]
                    self._tell("r")
                    await link.until_closed()
                finally:
                    link.terminate()
            except StoreError:
                pass
            await asyncio.sleep(uniform(0, pause))
            pause = min(pause * 2, longest)

    def _tell(self, message: str) -> None:
        kind, queue = message[:1], message[1:]
        for listener in self._listeners:
            if kind == "s":
                listener.add(Wake.SCHEDULED)
            elif not queue or queue in listener.queues:
                listener.add(Wake.READY)


class _Listener:
    """Collects hints for one `async for`."""

    def __init__(self, queues: frozenset[str]) -> None:
        self.queues = queues
        self.hints: set[Wake] = set()
        self.changed = asyncio.Event()

    def add(self, wake: Wake) -> None:
        """Add a hint."""
        self.hints.add(wake)
        self.changed.set()
