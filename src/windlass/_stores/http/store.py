"""The verbs of the seam, asked of `windlass serve`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import NoReturn, TypeVar

from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, Page, Slice
from ..._model.lease import Claim, Claimed, Heartbeat, Lease, Pulse
from ..._model.queue import Retention
from ..._model.record import Record
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.verdict import Settled, Settlement
from ..._store.json_codec import Decoder, encode
from ..._store.messages import (
    Apply,
    AttemptsOf,
    Beat,
    CountBy,
    Enqueue,
    Find,
    Lead,
    Nothing,
    Once,
    Promote,
    Prune,
    Put,
    RecordsOf,
    Remove,
    Rescue,
    Settle,
    ToClaim,
    name_of,
)
from ..._store.protocol import Capability, Durability, Finding, Join, Migration, Promise, Promoted, Wake
from ...errors import NotFound, NotSupported, StoreError, StoreUnavailable
from .client import Line

R = TypeVar("R", bound=Record)

_UNKNOWN = Promise(durability=Durability.VOLATILE, why="the server has not been asked yet")
_PAUSES = (0.1, 0.5, 2.0)
_WORKERS_ASK = {"heartbeat": "work", "about": "read", "prune": "operate", "enqueue": "enqueue"}
"""A verb of each scope that a worker and its keeper need."""


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
                self.promise = (await self._line.ask("about", Nothing())).promise
            except NotFound as error:
                raise StoreError(f"{self._line.url}: {error}; a path is that of a proxy, or wrong") from None

    async def close(self) -> None:
        """Let go of the connections."""
        await self._line.close()

    async def now(self) -> datetime:
        """The clock of the store behind the server."""
        now: datetime = (await self._line.ask("about", Nothing())).now
        return now

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Keep all of the batch or none of it."""
        answers: Sequence[Enqueued] = await self._line.ask("enqueue", Enqueue(tuple(batch)))
        return answers

    def join(self, connection: object) -> Join:  # noqa: ARG002  the seam's shape
        """A transaction here is none there."""
        raise NotSupported("a store over HTTP cannot enqueue inside your own transaction; use its own URL")

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease ready tasks to a live session."""
        claimed: Sequence[Claimed] = await self._line.ask("claim", ToClaim(claim))
        return claimed

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdicts whose leases hold, then claim."""
        settled: Settled = await self._line.ask("settle", Settle(tuple(batch), claim))
        return settled

    async def heartbeat(self, beat: Heartbeat) -> Pulse:
        """Renew the session; hand back strangers; report losses and requests to stop."""
        if not self._may_work:
            await self._check_scopes()
            self._may_work = True
        pulse: Pulse = await self._line.ask("heartbeat", Beat(beat))
        return pulse

    async def _check_scopes(self) -> None:
        """Say at the start what the key lacks, and not when a keeper first prunes, hours later."""
        lacking = [scope for verb, scope in _WORKERS_ASK.items() if not await self._line.may(verb)]
        if lacking:
            raise StoreError(
                f"{self._line.url}: a worker's key has the scopes {', '.join(_WORKERS_ASK.values())}; "
                f"this one lacks {', '.join(lacking)}"
            )

    def transaction(self) -> NoReturn:
        """There is no connection to the database from here."""
        raise NotSupported("a store over HTTP has no transactions to complete a task in; use its own URL")

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark the key; whether this lease was the first to."""
        return bool(await self._line.ask("once", Once(lease, key)))

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
        return bool(await self._line.ask("lead", Lead(holder, lease_for)))

    async def promote(self, limit: int) -> Promoted:
        """Make due tasks ready."""
        promoted: Promoted = await self._line.ask("promote", Promote(limit))
        return promoted

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Take over the running tasks of sessions that have expired."""
        rescued: Sequence[Claimed] = await self._line.ask("rescue", Rescue(session, limit))
        return rescued

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """Delete what retention no longer covers."""
        return int(await self._line.ask("prune", Prune(retention, limit, by)))

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """The tasks that match, by id."""
        found: Slice[Task] = await self._line.ask("find", Find(where, page))
        return found

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """How many match, by the values of each dimension."""
        counts: Sequence[Count] = await self._line.ask("count", CountBy(where, tuple(by)))
        return counts

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The lines of a task's attempts."""
        lines: Sequence[Attempt] = await self._line.ask("attempts", AttemptsOf(task_id))
        return lines

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Do it to those that match and allow it."""
        done: Sequence[TaskId] = await self._line.ask("apply", Apply(action, where, limit))
        return done

    async def put(self, record: Record, by: By | None = None) -> None:
        """Keep a record in place of the one of the same name."""
        await self._line.ask("put", Put(name_of(type(record)), encode(record), by))

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """The records of a kind, by name."""
        decoder: Decoder[Slice[R]] = Decoder(Slice[kind])  # type: ignore[valid-type]  # known at run time
        return decoder.decode(await self._line.send("records", RecordsOf(name_of(kind), page)))

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Forget a record."""
        return bool(await self._line.ask("remove", Remove(name_of(kind), name, by)))

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """The schema is the server's."""
        return ()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:  # noqa: ARG002  the seam's shape
        """Whoever nurses the store does it where it is."""
        raise NotSupported("a store over HTTP is migrated where it is: use its own URL")

    async def check(self) -> Sequence[Finding]:
        """What the store behind the server has to say."""
        findings: Sequence[Finding] = await self._line.ask("check", Nothing())
        return findings
