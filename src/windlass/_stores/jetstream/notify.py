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

MANY_QUEUES = 100
"""A process whose workers serve more queues than this hears the hints of all queues, by 2 subscriptions.

Subscribing by queue costs 0.1 ms of processor time and 8 kB of memory for each queue; ignoring a hint about a
queue that nobody here serves costs 7 µs."""

_CLOSE_SECONDS = 0.5
_READY, _SCHEDULED = b"r", b"s"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_EACH, _ONE = "each", "one"
_GROUP = "windlass"
_ANY_QUEUE = "*"


def _all(address: Address) -> str:
    return address.subject("wake", "all")


def _of_queue(address: Address, whom: str, queue: str) -> str:
    """Return the subject of hints about a queue, whatever its name: to `each` process or to `one`."""
    token = queue if _PLAIN.fullmatch(queue) else "=" + base64.b32encode(queue.encode()).decode().strip("=")
    return address.subject("wake", whom, token)


def _queue_of(subject: str) -> str:
    """Return the queue whose name `_of_queue` put into a subject."""
    token = subject.rpartition(".")[2]
    if not token.startswith("="):
        return token
    padding = "=" * (-len(token[1:]) % 8)
    return base64.b32decode(token[1:] + padding).decode()


class WakeHub:
    """The listeners of one handle on one event loop."""

    def __init__(self, client: Client, address: Address) -> None:
        self._client = client
        self._address = address
        self._listeners = Listeners()
        self._subscriptions: dict[str, list[Subscription]] = {}  # by subject of those for `each`, or of `all`
        self._updating: asyncio.Task[None] | None = None

    async def listen(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield hints about these queues, until the connection is closed for good."""
        listener = Listener(queues)
        self._listeners.add(listener)
        try:
            await self._updated()
            if queues:  # From here on the server passes on hints.
                listener.add(Wake.READY)  # Tasks enqueued before it listened have woken others.
            while not self._client.is_closed:
                for wake in await listener.hints():
                    yield wake
        finally:
            self._listeners.remove(listener)
            if not self._client.is_closed:
                _ = self._start_updating()

    def note_claim(self, claim: Claim, claimed: int, began: float) -> None:
        """Take into account what a claim got that began at a time of `monotonic`."""
        self._listeners.note_claim(claim, claimed, began)

    def wake_all(self) -> None:
        """Hints may have been missed."""
        self._listeners.wake_every_queue()

    async def close(self) -> None:
        """Stop waking, once the connection is closed."""
        self._listeners.close()
        if self._updating is not None:
            self._updating.cancel()
            await asyncio.wait([self._updating], timeout=_CLOSE_SECONDS)

    # -- subscriptions -------------------------------------------------------------------------------

    async def _updated(self) -> None:
        """Wait until the subscriptions are up to date. Raises what prevents it."""
        updating = self._start_updating()
        await asyncio.wait([updating])
        if not updating.cancelled():  # by `close`
            updating.result()

    def _start_updating(self) -> "asyncio.Future[None]":
        """Bring the subscriptions up to date, in the one task that may change them.

        No listener may be cancelled within nats-py: it ignores the cancellation if its queue of commands is
        full, and it reads no more if one came while it waited for the server's answer.
        """
        if self._updating is None or self._updating.done():
            self._updating = asyncio.create_task(self._update_until_current())
            self._updating.add_done_callback(_retrieve)  # nobody may be waiting for it
        return self._updating

    async def _update_until_current(self) -> None:
        """Subscribe to what is missing, unsubscribe from the rest; again if listeners changed meanwhile."""
        while (wanted := self._wanted()) != self._subscriptions.keys():
            missing = wanted - self._subscriptions.keys()
            for subject in missing:
                self._subscriptions[subject] = await self._subscribe(subject)
            if missing:
                with suppress(*TRANSIENT):
                    await self._client.flush()  # until the server has them
            for subject in self._subscriptions.keys() - wanted:
                for subscription in self._subscriptions.pop(subject):
                    with suppress(*TRANSIENT):
                        await subscription.unsubscribe()

    def _wanted(self) -> set[str]:
        """Return the subjects that the listeners need."""
        if not len(self._listeners):
            return set()
        queues = self._listeners.queues
        if len(queues) > MANY_QUEUES:
            return {_all(self._address), self._address.subject("wake", _EACH, _ANY_QUEUE)}
        return {_all(self._address), *(_of_queue(self._address, _EACH, queue) for queue in queues)}

    async def _subscribe(self, subject: str) -> list[Subscription]:
        if subject == _all(self._address):
            return [await self._client.subscribe(subject, cb=self._hear_of_all)]
        to_one = self._address.subject("wake", _ONE, subject.rpartition(".")[2])
        return [
            await self._client.subscribe(subject, cb=self._hear_of_queue),
            await self._client.subscribe(to_one, queue=_GROUP, cb=self._hear_of_queue),
        ]

    async def _hear_of_queue(self, message: Msg) -> None:
        self._listeners.wake(_queue_of(message.subject))

    async def _hear_of_all(self, message: Msg) -> None:
        if message.data == _SCHEDULED:
            self._listeners.wake_keepers()
        else:
            self._listeners.wake_every_queue()


def _retrieve(updating: "asyncio.Task[None]") -> None:
    """Mark the error as seen: a listener that needed the subscriptions has got it."""
    if not updating.cancelled():
        updating.exception()


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
            is_full = claimed >= claim.limit
            if wave is None or began < wave[0] or (claim.is_selective and not is_full):
                continue
            self._end(queue)
            if is_full:
                self._announce_queue(queue)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
        for queue in list(self._waves):
            self._end(queue)

    def _announce_queue(self, queue: str) -> None:
        if self.workers < MANY_WORKERS:
            self._publish(_of_queue(self._address, _EACH, queue), _READY)
            return
        self._end(queue)
        loop = asyncio.get_running_loop()
        self._waves[queue] = monotonic(), loop.call_later(PATIENCE_SECONDS, self._announce_to_each, queue)
        self._publish(_of_queue(self._address, _ONE, queue), _READY)

    def _announce_to_each(self, queue: str) -> None:
        self._end(queue)
        self._publish(_of_queue(self._address, _EACH, queue), _READY)

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
