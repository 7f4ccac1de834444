"""Wakes: one subscription per handle and event loop, and the listeners that share it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import uniform

from ..._model.lease import Claim
from ..._store.protocol import Wake
from ..._timers import Timer
from ...errors import StoreError
from ..listeners import Listener, Listeners
from .connection.client import Client

_RECONNECT_SECONDS = (0.1, 2.0)  # first and longest pause
_CANCEL_SECONDS = 0.5


class WakeHub:
    """The listeners of one handle in one event loop."""

    def __init__(self, client: Client, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._listeners = Listeners()
        self._reading: asyncio.Task[None] | None = None
        self._later = Timer(lambda: self._tell("r"))  # when a rate limit or a window lets more start

    def note_claim(self, claim: Claim, claimed: int, began: float) -> None:
        """Take into account what a claim got that began at a time of `monotonic`."""
        self._listeners.note_claim(claim, claimed, began)

    def wake_in(self, seconds: float) -> None:
        """Wake listeners after this time: tasks may be claimed then."""
        self._later.at(asyncio.get_running_loop().time() + seconds)

    async def listen(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield hints about these queues."""
        listener = Listener(queues)
        self._listeners.add(listener)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read())
        elif listener.queues:
            listener.add(Wake.READY)  # tasks enqueued before it listened have woken others
        try:
            while True:
                for wake in await listener.hints():
                    yield wake
        finally:
            self._listeners.remove(listener)
            if not self._listeners:
                await self.close()

    async def close(self) -> None:
        """Stop listening."""
        self._later.cancel()
        self._listeners.close()
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
        if kind == "s":
            self._listeners.wake_keepers()
        elif queue:
            self._listeners.wake(queue)
        else:
            self._listeners.wake_every_queue()
