"""Wakes over NATS: an owner publishes hints, and each event loop of a handle passes them on to its listeners.

With many workers an owner hints at one process first, then at all if no claim follows: it sees every claim.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from time import monotonic

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ..._model.lease import Claim
from ..._store.protocol import Wake
from ..listeners import PATIENCE_SECONDS, Listener, Listeners
from ..sqlite.transaction import Wakes
from .address import Address
from .stream import TRANSIENT

MANY_WORKERS = 50
"""From so many on, a ready task is hinted at one process first."""

_READY, _SCHEDULED = b"r", b"s"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def _all(address: Address) -> str:
    return address.subject("wake", "all")


def _of_queue(address: Address, whom: str, queue: str) -> str:
    """Return the subject of hints about a queue, whatever its name: to `each` process or to `one`."""
    token = queue if _PLAIN.fullmatch(queue) else "=" + base64.b32encode(queue.encode()).decode().strip("=")
    return address.subject("wake", whom, token)


class WakeHub:
    """The listeners of one handle on one event loop."""

    def __init__(self, client: Client, address: Address) -> None:
        self._client = client
        self._address = address
        self._listeners = Listeners()
        self._subscriptions: dict[str, list[Subscription]] = {}  # by queue; "" for those of all

    async def listen(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield hints about these queues, until the connection is closed for good."""
        listener = Listener(queues)
        self._listeners.add(listener)
        try:
            for queue in ("", *queues):
                await self._subscribe(queue)
            await asyncio.shield(self._flush())  # From here on the server passes on hints.
            if queues:
                listener.add(Wake.READY)  # Tasks enqueued before it listened have woken others.
            while not self._client.is_closed:
                for wake in await listener.hints():
                    yield wake
        finally:
            self._listeners.remove(listener)
            await self._unsubscribe_unused()

    def note_claim(self, claim: Claim, claimed: int, began: float) -> None:
        """Take into account what a claim got that began at a time of `monotonic`."""
        self._listeners.note_claim(claim, claimed, began)

    def wake_all(self) -> None:
        """Hints may have been missed."""
        self._listeners.wake_every_queue()

    def close(self) -> None:
        self._listeners.close()

    async def _subscribe(self, queue: str) -> None:
        if queue in self._subscriptions:
            return
        made = self._subscriptions[queue] = list[Subscription]()
        if not queue:
            made.append(await self._client.subscribe(_all(self._address), cb=self._hear_of_all))
            return

        async def hear(_: Msg) -> None:
            self._listeners.wake(queue)

        each, one = (_of_queue(self._address, whom, queue) for whom in ("each", "one"))
        made.append(await self._client.subscribe(each, cb=hear))
        made.append(await self._client.subscribe(one, queue="windlass", cb=hear))

    async def _flush(self) -> None:
        """Wait until the server has what was sent.

        It must not be cancelled: nats-py would read no more when the server answers.
        """
        with suppress(*TRANSIENT):
            await self._client.flush()

    async def _hear_of_all(self, message: Msg) -> None:
        if message.data == _SCHEDULED:
            self._listeners.wake_keepers()
        else:
            self._listeners.wake_every_queue()

    async def _unsubscribe_unused(self) -> None:
        used = {"", *self._listeners.queues} if len(self._listeners) else set[str]()
        for queue in set(self._subscriptions) - used:
            for subscription in self._subscriptions.pop(queue):
                with suppress(*TRANSIENT):
                    await subscription.unsubscribe()


class Announcer:
    """Publishes the hints of an owner."""

    def __init__(self, address: Address, publish: Callable[[str, bytes], None]) -> None:
        self._address = address
        self._publish = publish
        self._later: asyncio.TimerHandle | None = None
        self._waves: dict[str, tuple[float, asyncio.TimerHandle]] = {}  # hinted at one process, and when
        self.workers = 1  # of the store

    def announce(self, wakes: Wakes) -> None:
        """Publish hints for a commit that stands."""
        if wakes.affects_all_queues:
            self._publish(_all(self._address), _READY)
        else:
            for queue in wakes.ready:
                self._announce_queue(queue)
        if wakes.scheduled:
            self._publish(_all(self._address), _SCHEDULED)
        if wakes.wait is not None:
            self._announce_in(wakes.wait)

    def note_claim(self, claim: Claim, claimed: int, began: float) -> None:
        """Hint at one more process after a claim that got all it asked for; end the wave after another."""
        for queue in claim.queues if self._waves else ():
            wave = self._waves.get(queue)
            if wave is None or began < wave[0]:
                continue
            self._end(queue)
            if claimed >= claim.limit:
                self._announce_queue(queue)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
        for queue in list(self._waves):
            self._end(queue)

    def _announce_queue(self, queue: str) -> None:
        if self.workers < MANY_WORKERS:
            self._publish(_of_queue(self._address, "each", queue), _READY)
            return
        self._end(queue)
        loop = asyncio.get_running_loop()
        self._waves[queue] = monotonic(), loop.call_later(PATIENCE_SECONDS, self._announce_to_each, queue)
        self._publish(_of_queue(self._address, "one", queue), _READY)

    def _announce_to_each(self, queue: str) -> None:
        self._end(queue)
        self._publish(_of_queue(self._address, "each", queue), _READY)

    def _end(self, queue: str) -> None:
        wave = self._waves.pop(queue, None)
        if wave is not None:
            wave[1].cancel()

    def _announce_in(self, seconds: float) -> None:
        """Hint at all queues after this time, when a rate limit or a window lets more start."""
        loop = asyncio.get_running_loop()
        if self._later is not None:
            if loop.time() < self._later.when() <= loop.time() + seconds:
                return
            self._later.cancel()
        self._later = loop.call_later(seconds, self._publish, _all(self._address), _READY)
