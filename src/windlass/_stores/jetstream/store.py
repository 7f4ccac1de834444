"""The store protocol over NATS: every verb is a request to the process that owns the store."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import datetime
from time import monotonic
from typing import Any, NoReturn, TypeVar

import msgspec

from ..._model.filter import Page, Slice
from ..._model.lease import Claim, Claimed
from ..._model.record import Record
from ..._model.verdict import Settled, Settlement
from ..._store.clock import Clock
from ..._store.messages import (
    AboutRequest,
    ClaimRequest,
    RecordsRequest,
    RemoteStore,
    Request,
    SettleRequest,
    record_name,
)
from ..._store.protocol import Capability, Durability, Join, Migration, Promise, Wake
from ...errors import InvalidOption, NotSupported, StoreError
from .address import Address, parse
from .client import Lines
from .wire import decode_as, decode_response, encode_request

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_UNKNOWN = Promise(durability=Durability.VOLATILE, why="unknown until the store is opened")
_ORDER = (Durability.VOLATILE, Durability.RELAXED, Durability.DURABLE)


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
        sent = encode_request(request)
        line = await self._lines.line()
        response: T = decode_response(request.verb, await line.ask(request.verb, sent))
        return response

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        line = await self._lines.line()
        value = await line.ask("records", encode_request(RecordsRequest(record_name(kind), page)))
        decoder: msgspec.msgpack.Decoder[Slice[R]] = msgspec.msgpack.Decoder(Slice[kind])  # type: ignore[valid-type]
        return decode_as(decoder, value)

    async def claim(self, claim: Claim) -> tuple[Claimed, ...]:
        began = monotonic()
        claimed = await self.request(ClaimRequest(claim))
        (await self._lines.line()).hub.note_claim(claim, len(claimed), began)
        return claimed

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        began = monotonic()
        settled = await self.request(SettleRequest(tuple(batch), claim))
        if claim is not None:
            (await self._lines.line()).hub.note_claim(claim, len(settled.claimed), began)
        return settled

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        async for wake in (await self._lines.line()).hub.listen(queues):
            yield wake

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
