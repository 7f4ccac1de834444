"""The verbs of the seam, asked of `windlass serve`."""

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
from .client import Line

R = TypeVar("R", bound=Record)

_UNKNOWN = Promise(durability=Durability.VOLATILE, why="the server has not been asked yet")
_PAUSES = (0.1, 0.5, 2.0)
_WORKER_REQUESTS = (HeartbeatRequest, AboutRequest, PruneRequest, EnqueueRequest)
"""A request of each scope that a worker and its keeper need."""


class HttpStore:
    """A store that a `windlass serve` has, at a URL, with a key."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        self._line = Line(url, key)
        self.capabilities = Capability.SHARE
        self.promise = _UNKNOWN
        self._may_work = False

    def another(self) -> "HttpStore":
        """A further handle on the same server."""
        other = HttpStore(self._line.url, key=self._line.key)
        other._may_work = self._may_work
        return other

    async def open(self) -> None:
        """Ask what the store behind it promises."""
        if self.promise is _UNKNOWN:
            try:
                self.promise = (await self._line.ask(AboutRequest())).promise
            except NotFound as error:
                raise StoreError(f"{self._line.url}: {error}; a path is that of a proxy, or wrong") from None

    async def close(self) -> None:
        """Let go of the connections."""
        await self._line.close()

    async def now(self) -> datetime:
        """The clock of the store behind the server."""
        return (await self._line.ask(AboutRequest())).now

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Keep all of the batch or none of it."""
        return await self._line.ask(EnqueueRequest(tuple(batch)))

    def join(self, connection: object) -> Join:  # noqa: ARG002  the seam's shape
        """A transaction here is none there."""
        raise NotSupported("a store over HTTP cannot enqueue inside your own transaction; use its own URL")

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease ready tasks to a live session."""
        return await self._line.ask(ClaimRequest(claim))

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdicts whose leases hold, then claim."""
        return await self._line.ask(SettleRequest(tuple(batch), claim))

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renew the session; hand back strangers; report losses and requests to stop."""
        if not self._may_work:
            await self._check_scopes()
            self._may_work = True
        return await self._line.ask(HeartbeatRequest(beat))

    async def _check_scopes(self) -> None:
        """Say at the start what the key lacks, and not when a keeper first prunes, hours later."""
        lacking = [one.scope for one in _WORKER_REQUESTS if not await self._line.may(one.verb)]
        if lacking:
            raise StoreError(
                f"{self._line.url}: a worker's key has the scopes "
                f"{', '.join(one.scope for one in _WORKER_REQUESTS)}; "
                f"this one lacks {', '.join(lacking)}"
            )

    def transaction(self) -> NoReturn:
        """There is no connection to the database from here."""
        raise NotSupported("a store over HTTP has no transactions to complete a task in; use its own URL")

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark the key; whether this lease was the first to."""
        return await self._line.ask(OnceRequest(lease, key))

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Hints, as the server sends them; a line that breaks is mended, and a look is worth while then."""
        tries = 0
        while True:
            try:
                async for wake in self._line.wakes(queues):
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
        """Take, keep or give up the lead."""
        return await self._line.ask(LeadRequest(holder, lease_for))

    async def promote(self, limit: int) -> Promoted:
        """Make due tasks ready."""
        return await self._line.ask(PromoteRequest(limit))

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Take over the running tasks of sessions that have expired."""
        return await self._line.ask(RescueRequest(session, limit))

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """Delete what retention no longer covers."""
        return await self._line.ask(PruneRequest(retention, limit, by))

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """The tasks that match, by id."""
        return await self._line.ask(FindRequest(where, page))

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """How many match, by the values of each dimension."""
        return await self._line.ask(CountRequest(where, tuple(by)))

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The lines of a task's attempts."""
        return await self._line.ask(AttemptsRequest(task_id))

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Do it to those that match and allow it."""
        return await self._line.ask(ApplyRequest(action, where, limit))

    async def put(self, record: Record, by: By | None = None) -> None:
        """Keep a record in place of the one of the same name."""
        await self._line.ask(PutRequest(record_name(type(record)), encode(record), by))

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """The records of a kind, by name."""
        decoder: Decoder[Slice[R]] = Decoder(Slice[kind])  # type: ignore[valid-type]  # known at run time
        return decoder.decode(await self._line.send(RecordsRequest(record_name(kind), page)))

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Forget a record."""
        return await self._line.ask(RemoveRequest(record_name(kind), name, by))

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """The schema is the server's."""
        return ()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:  # noqa: ARG002  the seam's shape
        """Whoever nurses the store does it where it is."""
        raise NotSupported("a store over HTTP is migrated where it is: use its own URL")

    async def check(self) -> Sequence[Finding]:
        """What the store behind the server has to say."""
        return await self._line.ask(CheckRequest())
