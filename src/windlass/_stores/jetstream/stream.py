"""The stream that is a store's log, on a NATS server: append at a place, read, delete the beginning."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Protocol

import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from .address import Address

logger = logging.getLogger("windlass.owner")

TRANSIENT = (nats.errors.Error, asyncio.TimeoutError, OSError)
"""What the client raises while servers are not available; some are errors of the server's answer."""

PUBLISH_SECONDS = 0.5
"""How long an acknowledgement is waited for. One that was lost must be noticed well before a standby takes
the silence for the end of the owner."""

_ANSWER_SECONDS = 2.0
_FETCHED = 256
_FETCH_SECONDS = 0.25
WARN_SECONDS = 5.0
"""After this time without an append that succeeds, and every time it has passed again, a warning says why."""


class Extent(Struct, frozen=True):
    """The first and the last place of a log; first is last + 1 if it is empty."""

    first: int
    last: int
    bytes: int = 0


class Log(Protocol):
    """What the store needs of its stream."""

    async def publish(self, data: bytes, place: int) -> int | None:
        """Append an entry if it gets this place. Return where it is; None if that is not known."""

    async def read(self, place: int) -> bytes | None:
        """Return the entry at a place; None if there is none, as far as can be told."""

    async def extent(self) -> Extent | None:
        """Return the first and the last place; None if the server does not answer."""

    def entries(self, place: int) -> AsyncGenerator[list[tuple[int, bytes]], None]:
        """Yield entries from this place on, and an empty list whenever there was none for a while.

        Ends if a server fails, or an entry is missing; call it again then.
        """

    async def delete_through(self, place: int) -> None:
        """Delete all entries up to and including this place. Raises what TRANSIENT has."""


class StreamLog:
    """A log in a JetStream stream."""

    def __init__(self, client: Client, address: Address) -> None:
        self._client = client
        self._address = address
        self._stream = client.jetstream(timeout=_ANSWER_SECONDS)
        self._warn_at: float | None = None

    async def publish(self, data: bytes, place: int) -> int | None:
        headers = {"Nats-Expected-Last-Sequence": str(place - 1)}
        try:
            stored = await self._stream.publish(
                self._address.subject("log"), data, timeout=PUBLISH_SECONDS, headers=headers
            )
        except TRANSIENT as error:
            self._warn(error)
            return None
        self._warn_at = None
        return stored.seq

    def _warn(self, error: Exception) -> None:
        """Log why nothing can be appended, unless it passes soon, as elections and conflicts do."""
        now = time.monotonic()
        if self._warn_at is not None and now > self._warn_at:
            logger.warning(
                "cannot append to the stream %s, so nothing is acknowledged: %s",
                self._address.log_stream,
                getattr(error, "description", None) or error,
            )
        if self._warn_at is None or now > self._warn_at:
            self._warn_at = now + WARN_SECONDS

    async def read(self, place: int) -> bytes | None:
        try:
            found = await self._stream.get_msg(self._address.log_stream, place)
        except TRANSIENT:
            return None
        return found.data

    async def extent(self) -> Extent | None:
        try:
            state = (await self._stream.stream_info(self._address.log_stream)).state
        except TRANSIENT:
            return None
        return Extent(max(state.first_seq, 1), state.last_seq, state.bytes)

    async def entries(self, place: int) -> AsyncGenerator[list[tuple[int, bytes]], None]:
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=place,
            ack_policy=AckPolicy.NONE,
            num_replicas=1,
            mem_storage=True,
            inactive_threshold=30,
        )
        try:
            consumer = await self._stream.pull_subscribe(
                self._address.subject("log"), stream=self._address.log_stream, config=config
            )
        except TRANSIENT:
            return
        try:
            while True:
                try:
                    messages = await consumer.fetch(_FETCHED, timeout=_FETCH_SECONDS)
                except (TimeoutError, nats.errors.TimeoutError):
                    messages = []
                found = [(message.metadata.sequence.stream, message.data) for message in messages]
                if [at for at, _ in found] != list(range(place, place + len(found))):
                    return
                place += len(found)
                yield found
        except TRANSIENT:
            return
        finally:
            with suppress(*TRANSIENT):
                await consumer.unsubscribe()

    async def delete_through(self, place: int) -> None:
        await self._stream.purge_stream(self._address.log_stream, seq=place + 1)
