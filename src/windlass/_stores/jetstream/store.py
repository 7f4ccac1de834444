"""The store protocol over NATS: every verb is a request to the process that owns the store."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from random import uniform
from typing import Any, NoReturn, TypeVar

import msgspec
from nats.aio.msg import Msg

from ..._clock import Clock
from ..._model.filter import Page, Slice
from ..._model.record import Record
from ..._store.messages import AboutRequest, RecordsRequest, RemoteStore, Request, record_name
from ..._store.protocol import Capability, Durability, Join, Migration, Promise, Wake
from ...errors import InvalidOption, NotSupported, StoreError
from .address import Address, parse
from .client import Lines
from .stream import TRANSIENT
from .wire import decode_response, encode_request

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_UNKNOWN = Promise(durability=Durability.VOLATILE, why="unknown until the store is opened")
_ORDER = (Durability.VOLATILE, Durability.RELAXED, Durability.DURABLE)
_POLL_SECONDS = 20.0
"""Hints get lost only with a connection, and then all are given; this is for those that nobody foresaw."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


class JetStreamStore(RemoteStore):
    """A handle on a replicated store, for any number of threads and event loops."""

    capabilities = Capability.SHARE

    def __init__(self, address: Address) -> None:
        self.address = address
        self.promise = _UNKNOWN
        self._lines = Lines(address)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> "JetStreamStore":
        """Return the store of a URL. It has no clock of its own: that of its owner counts."""
        if clock is not None:
            raise InvalidOption("a store on NATS takes no clock: pass it to its owner")
        return cls(parse(url))

    def another(self) -> "JetStreamStore":
        return JetStreamStore(self.address)

    async def open(self) -> None:
        """Ask the owner what the store promises."""
        if self.promise is _UNKNOWN:
            promise = (await self.request(AboutRequest())).promise
            wanted = self.address.durability
            if wanted is not None and _ORDER.index(promise.durability) < _ORDER.index(wanted):
                raise StoreError(
                    f"{self.address.display} is {promise.durability}, but durability={wanted} was asked for: "
                    f"{promise.why}"
                )
            self.promise = promise

    async def close(self) -> None:
        await self._lines.close()

    async def now(self) -> datetime:
        return (await self.request(AboutRequest())).now

    async def request(self, request: Request[T]) -> T:
        try:
            sent = encode_request(request)
        except (OverflowError, TypeError) as error:
            raise InvalidOption(f"cannot be sent to the store: {error}") from error
        line = await self._lines.line()
        response: T = decode_response(request.verb, await line.ask(request.verb, sent))
        return response

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        line = await self._lines.line()
        value = await line.ask("records", encode_request(RecordsRequest(record_name(kind), page)))
        found: Slice[R] = msgspec.msgpack.decode(value, type=Slice[kind])  # type: ignore[valid-type]
        return found

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        line = await self._lines.line()
        hints: set[Wake] = set()
        changed = asyncio.Event()

        def add(*wakes: Wake) -> None:
            hints.update(wakes)
            changed.set()

        async def hear(message: Msg) -> None:
            add(Wake.SCHEDULED if message.data == SCHEDULED else Wake.READY)

        subjects = [self.address.subject("wake", "all"), *(wake_subject(self.address, one) for one in queues)]
        subscriptions = [await line.client.subscribe(subject, cb=hear) for subject in subjects]
        end = line.on_new(lambda: add(*Wake))
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS * uniform(0.8, 1.2)):
                        await changed.wait()
                for wake in sorted(hints) or list(Wake):
                    yield wake
                hints.clear()
                changed.clear()
        finally:
            end()
            for subscription in subscriptions:
                with suppress(*TRANSIENT):
                    await subscription.unsubscribe()

    # -- what a store elsewhere cannot do ------------------------------------------------------------

    def join(self, connection: object) -> Join:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: a transaction of a database cannot span the log."""
        raise NotSupported(
            "a store on NATS cannot enqueue in a transaction of your database; enqueue after your commit, or "
            "use a store on Postgres"
        )

    def transaction(self) -> NoReturn:
        """Raise NotSupported: there is no connection to a database."""
        raise NotSupported("a store on NATS has no transactions; use a store on Postgres")

    async def migrations(self) -> Sequence[Migration]:
        """Return an empty sequence: owners migrate the schema by themselves."""
        return ()

    def migrate(self, target: int | None = None) -> Coroutine[Any, Any, Sequence[Migration]]:  # noqa: ARG002
        """Raise NotSupported: the first owner that runs a newer windlass migrates the schema."""
        raise NotSupported(
            "a store on NATS is migrated by its owner; restart the owners with the new version"
        )


READY, SCHEDULED = b"r", b"s"


def wake_subject(address: Address, queue: str) -> str:
    """Return the subject of hints about a queue, whatever its name."""
    token = queue if _PLAIN.fullmatch(queue) else "=" + base64.b32encode(queue.encode()).decode().strip("=")
    return address.subject("wake", "queue", token)
