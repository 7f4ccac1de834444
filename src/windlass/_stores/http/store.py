"""The store protocol over HTTP, served by `windlass serve`."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import datetime
from random import uniform
from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from ..._model.filter import Page, Slice
from ..._model.lease import Claim, Heartbeat, HeartbeatReply
from ..._model.record import Record
from ..._model.verdict import Receipt, Settled, Settlement
from ..._store.json_codec import Decoder, encode
from ..._store.messages import (
    AboutRequest,
    EnqueueRequest,
    HeartbeatRequest,
    PruneRequest,
    RecordsRequest,
    RemoteStore,
    Request,
    SettleRequest,
    record_name,
)
from ..._store.protocol import Capability, Durability, Join, Migration, Promise, Wake
from ...errors import NotFound, NotSupported, StoreError, StoreUnavailable
from .client import StoreClient

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_UNKNOWN = Promise(durability=Durability.VOLATILE, why="unknown until the store is opened")
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 5.0  # seconds until it reconnects, doubled from one to the other
SETTLE_BYTES = 8 << 20
"""Settlements of more bytes are sent in several requests, none of which takes long."""

_WORKER_REQUESTS = (HeartbeatRequest, AboutRequest, PruneRequest, EnqueueRequest)
"""A request of each scope that a worker and its keeper need."""


class HttpStore(RemoteStore):
    """The store of a `windlass serve`, at a URL, with a key."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        self._client = StoreClient(url, key)
        self.capabilities = Capability.SHARE
        self.promise = _UNKNOWN
        self._may_work = False

    def another(self) -> "HttpStore":
        other = HttpStore(self._client.url, key=self._client.key)
        other._may_work = self._may_work
        return other

    async def open(self) -> None:
        """Fetch the durability of the store behind the server."""
        if self.promise is _UNKNOWN:
            try:
                about = await self.request(AboutRequest())
            except NotFound as error:
                raise StoreError(f"{self._client.url}: {error}; check the path of the URL") from None
            self.promise = about.promise
            if Capability.STRIPE.name in about.capabilities:
                self.capabilities |= Capability.STRIPE

    async def close(self) -> None:
        await self._client.close()

    async def now(self) -> datetime:
        return (await self.request(AboutRequest())).now

    def request(self, request: Request[T]) -> Coroutine[Any, Any, T]:
        return self._client.request(request)

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Settle, in several requests if the results are large: each settlement stands for itself.

        With a claim, the receipts of a request that failed are UNKNOWN, so that the others are settled.
        """
        request = SettleRequest(tuple(batch), claim)
        body = encode(request)
        if len(body) <= SETTLE_BYTES or len(batch) < 2:
            return await self._client.request(request, body)
        half = len(batch) // 2
        try:
            first = await self.settle(batch[:half])
        except StoreUnavailable:
            if claim is None:
                raise
            first = Settled(receipts=(Receipt.UNKNOWN,) * half)
        second = await self.settle(batch[half:], claim)
        return replace(
            second,
            receipts=(*first.receipts, *second.receipts),
            transitions=(*first.transitions, *second.transitions),
        )

    def join(self, connection: object) -> Join:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: a local transaction cannot span the server."""
        raise NotSupported(
            "a store over HTTP cannot enqueue in a local transaction; connect to the database itself"
        )

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Check once that the key has the scopes of a worker, then send it."""
        if not self._may_work:
            await self._check_scopes()
            self._may_work = True
        return await self.request(HeartbeatRequest(beat))

    async def _check_scopes(self) -> None:
        """Raise StoreError now for scopes that the key lacks, not hours later when a keeper prunes."""
        lacking = [one.scope for one in _WORKER_REQUESTS if not await self._client.allows(one.verb)]
        if lacking:
            raise StoreError(
                f"{self._client.url}: the key of a worker needs the scopes "
                f"{', '.join(one.scope for one in _WORKER_REQUESTS)}; "
                f"this one lacks {', '.join(lacking)}"
            )

    def transaction(self) -> NoReturn:
        """Raise NotSupported: there is no connection to the database."""
        raise NotSupported("a store over HTTP has no transactions; connect to the database itself")

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield the server's hints; reconnect when the connection breaks, and hint once then."""
        pause = _FIRST_PAUSE
        while True:
            try:
                async for wake in self._client.wakes(queues):
                    pause = _FIRST_PAUSE
                    yield wake
            except StoreUnavailable:
                pass
            await asyncio.sleep(pause * uniform(0.5, 1.5))  # all clients lose a server at the same instant
            pause = min(pause * 2, _LAST_PAUSE)
            for wake in Wake:
                yield wake

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        decoder: Decoder[Slice[R]] = Decoder(Slice[kind])  # type: ignore[valid-type]  # known at run time
        return decoder.decode(await self._client.send(RecordsRequest(record_name(kind), page)))

    async def migrations(self) -> Sequence[Migration]:
        """Return an empty sequence: the schema is managed by the server."""
        return ()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: the schema is migrated on the database itself."""
        raise NotSupported("a store over HTTP cannot be migrated; connect to the database itself")
