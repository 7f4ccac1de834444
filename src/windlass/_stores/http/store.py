"""The store protocol over HTTP, served by `windlass serve`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import NoReturn, TypeVar

from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, Page, Slice
from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.queue import Retention
from ..._model.record import Record
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.verdict import Settled, Settlement
from ..._store.json_codec import Decoder, encode
from ..._store.messages import (
    AboutRequest,
    ApplyRequest,
    AttemptsRequest,
    CheckRequest,
    ClaimRequest,
    CountRequest,
    EnqueueRequest,
    FindRequest,
    HeartbeatRequest,
    LeadRequest,
    OnceRequest,
    PromoteRequest,
    PruneRequest,
    PutRequest,
    RecordsRequest,
    RemoveRequest,
    RescueRequest,
    SettleRequest,
    record_name,
)
from ..._store.protocol import Capability, Durability, Finding, Join, Migration, Promise, Promoted, Wake
from ...errors import NotFound, NotSupported, StoreError, StoreUnavailable
from .client import StoreClient

R = TypeVar("R", bound=Record)

_UNKNOWN = Promise(durability=Durability.VOLATILE, why="unknown until the store is opened")
_PAUSES = (0.1, 0.5, 2.0)
_WORKER_REQUESTS = (HeartbeatRequest, AboutRequest, PruneRequest, EnqueueRequest)
"""A request of each scope that a worker and its keeper need."""


class HttpStore:
    """The store of a `windlass serve`, at a URL, with a key."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        self._client = StoreClient(url, key)
        self.capabilities = Capability.SHARE
        self.promise = _UNKNOWN
        self._may_work = False

    def another(self) -> "HttpStore":
        """Return another handle on the same server."""
        other = HttpStore(self._client.url, key=self._client.key)
        other._may_work = self._may_work
        return other

    async def open(self) -> None:
        """Fetch the durability of the store behind the server."""
        if self.promise is _UNKNOWN:
            try:
                self.promise = (await self._client.request(AboutRequest())).promise
            except NotFound as error:
                raise StoreError(f"{self._client.url}: {error}; check the path of the URL") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def now(self) -> datetime:
        """Return the time of the store behind the server."""
        return (await self._client.request(AboutRequest())).now

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Insert all of the batch or none of it."""
        return await self._client.request(EnqueueRequest(tuple(batch)))

    def join(self, connection: object) -> Join:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: a local transaction cannot span the server."""
        raise NotSupported(
            "a store over HTTP cannot enqueue in a local transaction; connect to the database itself"
        )

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease ready tasks to a live session."""
        return await self._client.request(ClaimRequest(claim))

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdicts whose leases hold, then claim."""
        return await self._client.request(SettleRequest(tuple(batch), claim))

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renew the session and release unacknowledged claims; report lost leases and requests to stop."""
        if not self._may_work:
            await self._check_scopes()
            self._may_work = True
        return await self._client.request(HeartbeatRequest(beat))

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

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark the key; return whether this lease was the first to."""
        return await self._client.request(OnceRequest(lease, key))

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield the server's hints; reconnect when the connection breaks, and hint once then."""
        tries = 0
        while True:
            try:
                async for wake in self._client.wakes(queues):
                    tries = 0
                    yield wake
            except StoreUnavailable:
                pass
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1
            for wake in Wake:
                yield wake

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """Take, renew or give up the lead."""
        return await self._client.request(LeadRequest(holder, lease_for))

    async def promote(self, limit: int) -> Promoted:
        """Make due tasks ready."""
        return await self._client.request(PromoteRequest(limit))

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Take over the running tasks of sessions that have expired."""
        return await self._client.request(RescueRequest(session, limit))

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """Delete what has passed its retention."""
        return await self._client.request(PruneRequest(retention, limit, by))

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """Return the tasks that match, by id."""
        return await self._client.request(FindRequest(where, page))

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """Count the matches, by the values of each dimension."""
        return await self._client.request(CountRequest(where, tuple(by)))

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """Return the recorded attempts of a task."""
        return await self._client.request(AttemptsRequest(task_id))

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Apply an action to the tasks that match and permit it."""
        return await self._client.request(ApplyRequest(action, where, limit))

    async def put(self, record: Record, by: By | None = None) -> None:
        """Store a record, replacing the one of the same name."""
        await self._client.request(PutRequest(record_name(type(record)), encode(record), by))

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """Return the records of a kind, by name."""
        decoder: Decoder[Slice[R]] = Decoder(Slice[kind])  # type: ignore[valid-type]  # known at run time
        return decoder.decode(await self._client.send(RecordsRequest(record_name(kind), page)))

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Delete a record."""
        return await self._client.request(RemoveRequest(record_name(kind), name, by))

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """Return an empty sequence: the schema is managed by the server."""
        return ()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: the schema is migrated on the database itself."""
        raise NotSupported("a store over HTTP cannot be migrated; connect to the database itself")

    async def check(self) -> Sequence[Finding]:
        """Return the findings of the store behind the server."""
        return await self._client.request(CheckRequest())
