"""The stream that is a store's log, on a NATS server: append at a place, read, delete the beginning."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol

import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from .address import Address

TRANSIENT = (nats.errors.Error, asyncio.TimeoutError, OSError)
"""What the client raises while servers are not available; some are errors of the server's answer."""

PUBLISH_SECONDS = 0.5
"""How long an acknowledgement is waited for. One that was lost must be noticed well before a standby takes
the silence for the end of the owner."""

_ANSWER_SECONDS = 2.0
_FETCHED = 256
_FETCH_SECONDS = 0.25


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

    def entries(self, place: int) -> AsyncIterator[list[tuple[int, bytes]]]:
        """Yield entries from this place on, and an empty list whenever there was none for a while.

        Ends if a server fails, or an entry is missing; call it again then.
        """

    async def delete_through(self, place: int) -> None:
        """Delete all entries up to and including this place."""


class StreamLog:
    """A log in a JetStream stream."""

    def __init__(self, client: Client, address: Address) -> None:
        self._client = client
        self._address = address
        self._stream = client.jetstream(timeout=_ANSWER_SECONDS)

    async def publish(self, data: bytes, place: int) -> int | None:
        headers = {"Nats-Expected-Last-Sequence": str(place - 1)}
        try:
            stored = await self._stream.publish(
                self._address.subject("log"), data, timeout=PUBLISH_SECONDS, headers=headers
            )
        except TRANSIENT:
            return None
        return stored.seq

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

    async def entries(self, place: int) -> AsyncIterator[list[tuple[int, bytes]]]:
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
        with suppress(*TRANSIENT):  # The next snapshot deletes it.
            await self._stream.purge_stream(self._address.log_stream, seq=place + 1)
