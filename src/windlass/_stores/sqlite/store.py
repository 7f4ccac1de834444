"""The store protocol over one SQLite file."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakSet

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, LoggedAction, Page, Rewrite, Slice
from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.limit import Usage
from ..._model.queue import QueueSettings, Retention
from ..._model.record import KINDS, Record, Session, StoredRecord
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.transition import Applied, Pruned
from ..._model.verdict import Settled, Settlement
from ..._store.clock import Clock, SystemClock
from ..._store.protocol import (
    Capability,
    Durability,
    Finding,
    Join,
    Migration,
    Promise,
    Promoted,
    Wake,
)
from ...errors import InvalidOption
from ..forks import leave_in_children
from ..rules import refusals
from ..rules.actions import applicable
from ..rules.audit import is_about_tasks, logged
from . import checks, leases, rule_player, schema, upkeep
from .claim import relayout
from .claim.queries import LaneRotation
from .connection.commits import Commits, FileCommits
from .connection.open import check_in_place
from .connection.threads import DEADLINE_SECONDS, ReaderThread, StoreThread, WriterThread, closed
from .join import join
from .notify import WakeHub
from .own_transaction import OwnTransaction
from .read.filters import is_named
from .read.find import Reader
from .transaction import Transaction

R = TypeVar("R", bound=Record)
A = TypeVar("A")

_SPARE = 500
"""How many more tasks are searched for than an action may take: some may have changed when it is applied,
such as successors that were cancelled along with their predecessor."""


class SQLiteStore:
    """A store in one file, for any number of threads, event loops and processes on one machine.

    A handle has a writer thread, a reader thread, and one that counts, each with its own connection: to count
    may take seconds. It opens itself on first use; once closed it must be opened again. A forked child opens
    its own connections.
    """

    capabilities = Capability.JOIN | Capability.SHARE | Capability.MIGRATE
    promise = Promise(
        durability=Durability.DURABLE,
        why="a commit returns once file, journal and directory are synced "
        "(rollback journal, synchronous=EXTRA)",
    )

    def __init__(self, path: str | Path, *, clock: Clock | None = None) -> None:
        if str(path) in ("", ".", ":memory:"):
            raise InvalidOption(
                f"{str(path)!r} is not a file path: "
                f"use sqlite:///windlass.db, or memory:// for a store that is not persistent"
            )
        self.path = Path(path).absolute()
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._closed = False
        self._writer_thread: WriterThread | None = None
        self._reader_threads: dict[str, ReaderThread] = {}
        self._wake_hub = WakeHub(self.path)
        self._transaction_lock = threading.Lock()
        self._rotation = LaneRotation(random.random)
        self._prune_round = upkeep.PruneRound()
        self._transactions: WeakSet[OwnTransaction] = WeakSet()
        leave_in_children(self)

    @classmethod
    def from_url(cls, rest: str, *, clock: Clock | None = None) -> "SQLiteStore":
        """Return the store for the part of a URL after sqlite://: a slash and a relative or absolute path."""
        if rest and not rest.startswith("/") and rest != ":memory:":
            raise InvalidOption(f"sqlite://{rest} has too few slashes: write sqlite:///{rest}")
        return cls(rest.removeprefix("/"), clock=clock)

    def another(self) -> "SQLiteStore":
        """Return another handle on the same file, with its own threads and connections."""
        return SQLiteStore(self.path, clock=self.clock)

    async def now(self) -> datetime:
        return self.clock.now()

    # -- open and close ------------------------------------------------------------------------------

    async def open(self) -> None:
        self._closed = False
        await asyncio.wrap_future(self._writer().ready)

    async def close(self) -> None:
        """Serve the pending requests, then close the file."""
        with self._lock:
            self._closed = True
            threads = self._threads()
            self._writer_thread, self._reader_threads = None, {}
        for thread, ended in [(thread, thread.close()) for thread in threads]:
            # A thread stuck in a system call is abandoned; it ends with the process.
            await asyncio.wait([asyncio.wrap_future(ended)], timeout=DEADLINE_SECONDS)
            if ended.done():
                thread.join()

    def _writer(self) -> WriterThread:
        with self._lock:
            self._check_open()
            if self._writer_thread is None or self._writer_thread.is_closed:
                self._writer_thread = WriterThread(self.path, self.clock, self._make_commits())
            return self._writer_thread

    def _make_commits(self) -> Commits:
        """Return where the commits of a writer thread go."""
        return FileCommits(self._wake_hub.notify)

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self.path)

    async def _reader(self, name: str) -> ReaderThread:
        writer = self._writer()
        if not writer.ready.done():  # The first read may come before the schema exists.
            await asyncio.wrap_future(writer.ready)
        with self._lock:
            self._check_open()
            reader = self._reader_threads.get(name)
            if reader is None or reader.is_closed:
                reader = self._reader_threads[name] = ReaderThread(self.path, name, writer.connect)
            return reader

    def _threads(self) -> list[StoreThread[Transaction] | StoreThread[Reader]]:
        writer = [] if self._writer_thread is None else [self._writer_thread]
        return [*writer, *self._reader_threads.values()]

    async def _write(self, work: Callable[[Transaction], A]) -> A:
        return await self._writer().submit(work)

    async def _repeat(self, step: Callable[[Transaction], bool]) -> None:
        """Run a step, each time in a transaction of its own, until it returns False."""
        while await self._write(step):
            continue

    async def _read(self, work: Callable[[Reader], A], thread: str = "read") -> A:
        return await (await self._reader(thread)).submit(work)

    def leave_to_parent(self) -> None:
        """In a forked child: drop the parent's threads and connections without closing them."""
        for thread in self._threads():
            thread.leave_to_parent()
        for transaction in self._transactions:
            transaction.leave_to_parent()
        self._wake_hub.leave_to_parent()
        self._writer_thread, self._reader_threads = None, {}
        self._lock, self._transaction_lock = threading.Lock(), threading.Lock()
        self._wake_hub = WakeHub(self.path)

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        return await self._write(lambda tx: rule_player.enqueue(tx, batch))

    def join(self, connection: object) -> Join:
        """Join the caller's transaction on a sqlite3.Connection to the same file; see SQLiteJoin."""
        return join(connection, self.clock, self.path)

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        return await self._write(lambda tx: leases.claim(tx, claim, self._rotation))

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        return await self._write(lambda tx: leases.settle(tx, batch, claim, self._rotation))

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return await self._write(lambda tx: leases.heartbeat(tx, beat))

    def transaction(self) -> OwnTransaction:
        """Return a transaction on its own connection; it holds the write lock. See docs/stores.md."""
        begun = OwnTransaction(self.path, self._writer().ready, self._transaction_lock, self._wake_hub.notify)
        self._transactions.add(begun)
        return begun

    async def once(self, lease: Lease, key: str) -> bool:
        return await self._write(lambda tx: leases.once(tx, lease, key))

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        with self._wake_hub.listen(queues) as listener:
            while True:
                for wake in await listener.hints(self._read):
                    yield wake

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        return await self._write(lambda tx: upkeep.lead(tx, holder, lease_for))

    async def promote(self, limit: int) -> Promoted:
        return await self._write(lambda tx: upkeep.promote(tx, limit))

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        return await self._write(lambda tx: leases.rescue(tx, session, limit))

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        """Delete what has passed its retention, oldest end first of each queue, type and state."""
        pruned = await self._prune_some(default, limit, by)
        await self._repeat(upkeep.prune_keys)
        await self._repeat(relayout.continue_relayout)
        after: str | None = "" if pruned.number < limit else None  # Only when nothing else is left to prune.
        while after is not None:
            after = await self._write(partial(upkeep.prune_buckets, after=after))
        return pruned

    async def _prune_some(self, default: Retention, limit: int, by: By | None) -> Pruned:
        """Prune step by step until something was deleted, or a whole round has found nothing."""
        this_round = self._prune_round
        is_whole = not this_round.has_begun
        while True:
            step = partial(upkeep.prune, default=default, limit=limit, by=by, this_round=this_round)
            pruned, this_round = await self._write(step)
            self._prune_round, by = this_round, None
            if pruned.number or limit <= 0:
                return pruned
            if not this_round.has_begun:
                if is_whole:
                    return pruned
                is_whole = True

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        return await self._read(lambda reader: reader.find(where, page))

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> Sequence[Count]:
        """Count the matches; inexact where too many tasks would have to be read at once."""
        return await self._read(lambda reader: reader.count(where, by, sized=sized), thread="count")

    async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
        return await self._read(lambda reader: reader.ended(ids))

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        return await self._read(lambda reader: tuple(reader.attempts(task_id)))

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        """Apply an action to the tasks that match and permit it.

        A filter that does not name its tasks is searched before the transaction, which other writes would
        wait for, and checked again within it. One transaction, unless too many of those found have changed
        by then.
        """
        if isinstance(action, LoggedAction):
            return await self._log(action, where, limit)
        if isinstance(action, Rewrite):
            return await self._write(lambda tx: rule_player.rewrite(tx, action))
        if is_named(where) or limit <= 0:
            return await self._write(lambda tx: rule_player.apply(tx, action, where, limit))
        meant, cursor = applicable(action, where), None
        done = Applied()
        while True:
            page = Page(limit=limit + _SPARE, cursor=cursor)
            found = await self._read(partial(Reader.find_ids, where=meant, page=page))
            if found.items:
                these = replace(meant, ids=found.items)
                done += await self._write(
                    partial(rule_player.apply, action=action, where=these, limit=limit - len(done.ids))
                )
            cursor = found.cursor
            if cursor is None or len(done.ids) == limit:
                return done

    async def _log(self, action: LoggedAction, where: Filter, limit: int) -> Applied:
        meant = is_about_tasks(action) and limit > 0
        found = (await self.find(where, Page(limit=limit))).items if meant else ()
        await self._write(lambda tx: rule_player.write_audit(tx, logged(action, found, tx.now)))
        return Applied(ids=tuple(task.id for task in found))

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        if not isinstance(record, QueueSettings | StoredRecord):
            raise refusals.written_by_itself(record)
        if await self._write(lambda tx: upkeep.put(tx, record, by, expected)):
            await self._repeat(relayout.continue_relayout)  # The keeper would do so a little later.

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        if kind is Usage:
            now = self.clock.now()
            return cast("Slice[R]", await self._read(lambda reader: reader.usages(page, now)))
        return await self._read(lambda reader: reader.records(kind, page))

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        if kind not in KINDS and kind not in (QueueSettings, Session):
            raise refusals.not_removed(kind)
        removed, more = await self._write(lambda tx: upkeep.remove(tx, kind, name, by))
        if more:
            await self._repeat(relayout.continue_relayout)
        return removed

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        return await asyncio.to_thread(schema.listed, self.path)

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Migrate up or down, each step in a transaction; several processes may do so at once."""
        return await asyncio.to_thread(schema.on_file, self.path, lambda file: schema.migrate(file, target))

    async def check(self) -> Sequence[Finding]:
        """Check the file, its journal mode and its tasks."""
        if self._writer_thread is not None:
            check_in_place(self.path)
        return await asyncio.to_thread(checks.check, self.path, self.clock.now())
