"""The verbs of the seam over one SQLite file."""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakSet

from msgspec.structs import replace

from ..._clock import Clock, SystemClock
from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, Page, Slice
from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.limit import Usage
from ..._model.queue import QueueSettings, Retention
from ..._model.record import KINDS, Record, Session, StoredRecord
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.verdict import Settled, Settlement
from ..._store.protocol import Capability, Durability, Finding, Join, Migration, Promise, Promoted, Wake
from ...errors import InvalidOption, StoreError
from ..rules import refusals
from ..rules.actions import applicable
from . import actions, checks, schema, sessions
from . import settle as leases
from . import upkeep as keeping
from .claim import relayout as rearranging
from .claim.queries import Rounds
from .connection.threads import DEADLINE_SECONDS, Line, ReadLine, WriteLine
from .join import join
from .notify import Switchboard
from .own_transaction import OwnTransaction
from .read.filters import is_named
from .read.find import Reader
from .rule_player import enqueue
from .transaction import Transaction

R = TypeVar("R", bound=Record)
A = TypeVar("A")

_PROMISE = Promise(
    durability=Durability.DURABLE,
    why="a commit returns once file, journal and directory are synced (rollback journal, synchronous=EXTRA)",
)


_SPARE = 500
"""So many more tasks are looked for than an action may take, for some are not to be had when it comes to it:
successors go along with the one they wait for, say."""


class SQLiteStore:
    """A store in one file, for any number of threads, event loops and processes of one machine.

    A handle has a thread that writes and one that reads, each with a connection of its own. It opens itself
    at first use; once closed it must be opened again. A forked child opens connections of its own.
    """

    capabilities = Capability.JOIN | Capability.SHARE | Capability.MIGRATE
    promise = _PROMISE

    def __init__(self, path: str | Path, *, clock: Clock | None = None) -> None:
        if str(path) in ("", ".", ":memory:"):
            raise InvalidOption(
                f"SQLiteStore keeps tasks in a file, and {str(path)!r} names none: "
                f"use sqlite:///windlass.db, or memory:// for a store that forgets"
            )
        self.path = Path(path).absolute()
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._closed = False
        self._writing: WriteLine | None = None
        self._reading: ReadLine | None = None
        self._switchboard = Switchboard(self.path)
        self._one_by_one = threading.Lock()
        self._rounds = Rounds(random.random)
        self._transactions: WeakSet[OwnTransaction] = WeakSet()
        _handles.add(self)

    @classmethod
    def from_url(cls, rest: str, *, clock: Clock | None = None) -> "SQLiteStore":
        """The store for what follows sqlite:// in a URL: one slash and a relative or absolute path."""
        if rest and not rest.startswith("/") and rest != ":memory:":
            raise InvalidOption(f"sqlite://{rest} has too few slashes: write sqlite:///{rest}")
        return cls(rest.removeprefix("/"), clock=clock)

    def another(self) -> "SQLiteStore":
        """A further handle on the same file, with threads and connections of its own."""
        return SQLiteStore(self.path, clock=self.clock)

    async def now(self) -> datetime:
        """The clock's now."""
        return self.clock.now()

    # -- open and close ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; make the schema where there is none."""
        self._closed = False
        await asyncio.wrap_future(self._writer().ready)

    async def close(self) -> None:
        """Serve what has been asked for, then let go of the file."""
        with self._lock:
            self._closed = True
            lines: list[Line[Transaction] | Line[Reader]] = [
                line for line in (self._writing, self._reading) if line is not None
            ]
            self._writing = self._reading = None
        for line, ended in [(line, line.close()) for line in lines]:
            # A thread that hangs in a system call is left behind; it ends with the process.
            await asyncio.wait([asyncio.wrap_future(ended)], timeout=DEADLINE_SECONDS)
            if ended.done():
                line.join()

    def _writer(self) -> WriteLine:
        with self._lock:
            self._check_open()
            if self._writing is None or self._writing.is_over:
                self._writing = WriteLine(self.path, self.clock, self._switchboard.tell)
            return self._writing

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store on {self.path} is closed; open it again to use it")

    async def _reader(self) -> ReadLine:
        writer = self._writer()
        if not writer.ready.done():  # The first read may come before the schema is made.
            await asyncio.wrap_future(writer.ready)
        with self._lock:
            self._check_open()
            if self._reading is None or self._reading.is_over:
                self._reading = ReadLine(self.path, "read")
            return self._reading

    async def _write(self, work: Callable[[Transaction], A]) -> A:
        return await self._writer().ask(work)

    async def _read(self, work: Callable[[Reader], A]) -> A:
        return await (await self._reader()).ask(work)

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's threads and connections, without touching them."""
        for line in (self._writing, self._reading):
            if line is not None:
                line.leave_to_parent()
        for transaction in self._transactions:
            transaction.leave_to_parent()
        self._switchboard.leave_to_parent()
        self._writing = self._reading = None
        self._lock, self._one_by_one = threading.Lock(), threading.Lock()
        self._switchboard = Switchboard(self.path)

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Keep all of the batch or none of it."""
        return await self._write(lambda tx: enqueue(tx, batch))

    def join(self, connection: object) -> Join:
        """The caller's own transaction on a sqlite3.Connection to the same file; see SQLiteJoin."""
        return join(connection, self.clock, self.path)

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease ready tasks to a live session."""
        return await self._write(lambda tx: leases.claim(tx, claim, self._rounds))

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdicts whose leases hold, then claim."""
        return await self._write(lambda tx: leases.settle(tx, batch, claim, self._rounds))

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renew the session; hand back strangers; report losses and requests to stop."""
        return await self._write(lambda tx: sessions.heartbeat(tx, beat))

    def transaction(self) -> OwnTransaction:
        """A transaction on a connection of its own, with the file to itself; see docs/stores.md."""
        begun = OwnTransaction(self.path, self._writer().ready, self._one_by_one, self._switchboard.tell)
        self._transactions.add(begun)
        return begun

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark the key; whether this lease was the first to."""
        return await self._write(lambda tx: leases.once(tx, lease, key))

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """A hint for every change that may matter to these queues; several at once become one."""
        with self._switchboard.listen(queues) as listener:
            while True:
                for wake in await listener.hints(self._read):
                    yield wake

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """Take, keep or give up the lead."""
        return await self._write(lambda tx: keeping.lead(tx, holder, lease_for))

    async def promote(self, limit: int) -> Promoted:
        """Make due tasks ready."""
        return await self._write(lambda tx: keeping.promote(tx, limit))

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Take over the running tasks of sessions that have expired."""
        return await self._write(lambda tx: sessions.rescue(tx, session, limit))

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """Delete what retention no longer covers, longest ended first in each queue."""
        pruned = await self._write(lambda tx: keeping.prune(tx, retention, limit, by))
        for rest in (keeping.prune_keys, rearranging.go_on):
            while await self._write(rest):
                continue
        after: str | None = "" if pruned < limit else None  # Once a round, when nothing else is left.
        while after is not None:
            after = await self._write(partial(keeping.prune_buckets, after=after))
        return pruned

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """The tasks that match, by id."""
        return await self._read(lambda reader: reader.find(where, page))

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """How many match; not exact where too many tasks would have to be read in one go."""
        return await self._read(lambda reader: reader.count(where, by))

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The lines of a task's attempts."""
        return await self._read(lambda reader: tuple(reader.attempts(task_id)))

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Do it to those that match and allow it.

        What the filter does not name is looked for before the transaction, lest everybody wait for the look;
        the transaction judges again. It is one, unless a great many of those found are not to be had then.
        """
        if is_named(where) or limit <= 0:
            return await self._write(lambda tx: actions.apply(tx, action, where, limit))
        meant, cursor = applicable(action, where), None
        done: list[TaskId] = []
        while True:
            page = Page(limit=limit + _SPARE, cursor=cursor)
            found = await self._read(partial(Reader.find_ids, where=meant, page=page))
            these = replace(meant, ids=found.items)
            done += await self._write(
                partial(actions.apply, action=action, where=these, limit=limit - len(done))
            )
            cursor = found.cursor
            if cursor is None or len(done) == limit:
                return done

    async def put(self, record: Record, by: By | None = None) -> None:
        """Keep a record in place of the one of the same name. Some kinds are the store's own to write."""
        if not isinstance(record, QueueSettings | StoredRecord):
            raise refusals.written_by_itself(record)
        await self._rearrange(more=await self._write(lambda tx: keeping.put(tx, record, by)))

    async def _rearrange(self, *, more: bool) -> None:
        """Put the rest of what waits where it belongs; the keeper would too, a little later."""
        while more:
            more = await self._write(rearranging.go_on)

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """The records of a kind, by name."""
        if kind is Usage:
            now = self.clock.now()
            return cast("Slice[R]", await self._read(lambda reader: reader.usages(page, now)))
        return await self._read(lambda reader: reader.records(kind, page))

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Forget a record; what a session held becomes rescuable."""
        if kind not in KINDS and kind not in (QueueSettings, Session):
            raise refusals.not_removed(kind)
        removed, more = await self._write(lambda tx: keeping.remove(tx, kind, name, by))
        await self._rearrange(more=more)
        return removed

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """Every step of the schema that this code or the file knows."""
        return await asyncio.to_thread(schema.listed, self.path)

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Go up or down, each step in a transaction; any number of processes may try at once."""
        return await asyncio.to_thread(schema.on_file, self.path, lambda file: schema.migrate(file, target))

    async def check(self) -> Sequence[Finding]:
        """Look at the file, its discipline and what lies about in it."""
        return await asyncio.to_thread(checks.check, self.path, self.clock.now())


_handles: "WeakSet[SQLiteStore]" = WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
