"""The store protocol over tables in memory: the specification of every other store."""

import asyncio
import atexit
import logging
import os
import random
import sys
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, LoggedAction, Page, Rewrite, Slice, page_of
from ..._model.lease import RESCUED, CancelRequest, Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.limit import Limit, Usage
from ..._model.queue import QueueSettings, Retention
from ..._model.record import Audit, Record, Session, StoredRecord
from ..._model.state import ENDED, State, Verb
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.transition import Applied, Pruned, pruned_counts
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
    Severity,
    Wake,
)
from ..._timers import Timer
from ...errors import NotSupported
from ..records import check_expected
from ..rules import cancellation, refusals
from ..rules.audit import audited_prune, audited_put, audited_removal, is_about_tasks, logged
from ..rules.claim_planner import Rotation
from ..rules.filters import matches
from ..rules.retention import RetentionRules
from ..rules.sizes import bytes_of, steps_to_come
from .actions import act, finished_before, rewrite
from .admission import admit
from .leases import grant, leased, release_unacknowledged_claims, settle, usages
from .tables import Tables

R = TypeVar("R", bound=Record)


class MemoryStore:
    """A store in this process's memory: for tests, and as the specification of the others."""

    capabilities = Capability(0)
    promise = Promise(durability=Durability.VOLATILE, why="kept in this process's memory only")

    def __init__(self, *, clock: Clock | None = None, _tables: Tables | None = None) -> None:
        self.clock = clock or SystemClock()
        self._tables = _tables or Tables()
        self._rotation = Rotation(random.random)
        self._later = Timer(lambda: self._tables.wake_queue(None))  # when a rate limit lets more start

    async def open(self) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    @classmethod
    def of_program(cls, *, clock: Clock | None = None) -> "MemoryStore":
        """Return the store of a program, which is told at its end how many tasks it loses."""
        made = cls(clock=clock)
        report_at_exit(made._tables)
        return made

    def another(self) -> "MemoryStore":
        return MemoryStore(clock=self.clock, _tables=self._tables)

    async def now(self) -> datetime:
        return self.clock.now()

    @contextmanager
    def _locked(self) -> Iterator[tuple[Tables, datetime]]:
        """Lock the tables; yield them and the current time."""
        with self._tables.lock:
            self._tables.transitions = []
            yield self._tables, self.clock.now()

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        return self.admit(batch)

    def admit(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Enqueue, in any thread and without an event loop."""
        with self._locked() as (tables, now):
            enqueued = admit(tables, batch, now)
            tables.wake(new.id for new in batch)
        return enqueued

    def join(self, connection: object) -> Join:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: there are no transactions."""
        raise NotSupported("the memory store has no transactions to enqueue in; use sqlite:///…")

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        with self._locked() as (_, now):
            self._alive(claim.session, now)
            return self._grant(claim, now)

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        with self._locked() as (tables, now):
            receipts = settle(tables, batch, now)
            if batch and tables.limits:
                tables.wake_queue(None)  # Tasks that a limit held back may start now, in any queue.
            transitions = tuple(tables.transitions)
            if claim is None or not self._is_alive(claim.session, now):
                return Settled(receipts=receipts, transitions=transitions)
            return Settled(receipts=receipts, claimed=tuple(self._grant(claim, now)), transitions=transitions)

    def _grant(self, claim: Claim, now: datetime) -> list[Claimed]:
        claimed, wait = grant(self._tables, claim, self._rotation, now)
        if wait is not None:
            self._later.at(asyncio.get_running_loop().time() + wait)
        return claimed

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        with self._locked() as (tables, now):
            session = tables.sessions.get(beat.session)
            if session is None and not beat.opening:
                return HeartbeatReply(alive=False)
            tables.sessions[beat.session] = Session(
                id=beat.session,
                worker=beat.worker,
                started_at=session.started_at if session else now,
                beat_at=now,
                expires_at=now + beat.lease_for,
            )
            release_unacknowledged_claims(tables, beat, now)
            for reported in beat.progress:
                task = leased(tables, reported.lease)
                if task is not None:
                    tables.keep(replace(task, progress=reported.progress))
            held = [(lease, leased(tables, lease)) for lease in beat.held]
            return HeartbeatReply(
                alive=True,
                lost=tuple(lease for lease, task in held if task is None),
                cancel=tuple(
                    CancelRequest(task.id, task.cancelled_by, task.cancel_reason)
                    for _, task in held
                    if task is not None and task.cancel_requested
                ),
                transitions=tuple(tables.transitions),
                workers=len(tables.sessions),
            )

    def transaction(self) -> NoReturn:
        """Raise NotSupported: there are no transactions."""
        raise NotSupported("the memory store has no transactions to complete a task in; use sqlite:///…")

    async def once(self, lease: Lease, key: str) -> bool:
        with self._locked() as (tables, _):
            if leased(tables, lease) is None:
                raise refusals.lease_lost(lease, key)
            return tables.marks.setdefault(lease.task_id, {}).setdefault(key, lease.fence) == lease.fence

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        loop = asyncio.get_running_loop()
        hints: set[Wake] = set()
        changed = asyncio.Event()

        def hint(wake: Wake) -> None:
            hints.add(wake)
            changed.set()

        listener = (frozenset(queues), lambda wake: loop.call_soon_threadsafe(hint, wake))
        self._tables.listeners.append(listener)
        try:
            while True:
                await changed.wait()
                changed.clear()
                for wake in sorted(hints):
                    hints.discard(wake)
                    yield wake
        finally:
            self._tables.listeners.remove(listener)

    def _alive(self, session: str, now: datetime) -> None:
        if not self._is_alive(session, now):
            raise refusals.session_lost(session)

    def _is_alive(self, session: str, now: datetime) -> bool:
        found = self._tables.sessions.get(session)
        return found is not None and found.expires_at > now

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        with self._locked() as (tables, now):
            leader = tables.leader
            # A lead that is longer than the one requested dates from before the clock was set back.
            if (
                leader is not None
                and leader[0] != holder
                and (not lease_for or now < leader[1] <= now + lease_for)
            ):
                return False
            tables.leader = (holder, now + lease_for) if lease_for else None
            return bool(lease_for)

    async def promote(self, limit: int) -> Promoted:
        with self._locked() as (tables, now):
            promoted: list[TaskId] = []
            while (task := tables.next_scheduled()) is not None and len(promoted) < limit:
                if task.run_at > now:
                    break
                tables.move(task, Verb.PROMOTE, State.READY)
                promoted.append(task.id)
            tables.wake(promoted)
            return Promoted(number=len(promoted), next_at=None if task is None else task.run_at)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        with self._locked() as (tables, now):
            self._alive(session, now)
            rescued: list[Claimed] = []
            for expired in [s for s in tables.held if not self._is_alive(s, now)]:
                for task_id in list(tables.held[expired])[: limit - len(rescued)]:
                    task = tables.tasks[task_id]
                    tables.release(task)
                    tables.hold(session, task_id, RESCUED)
                    moved = tables.move(
                        task, Verb.RESCUE, State.RUNNING, fence=task.fence + 1, session=session
                    )
                    rescued.append(Claimed(moved))
            for gone in [s for s in tables.sessions if not self._is_alive(s, now) and s not in tables.held]:
                del tables.sessions[gone]
            return rescued

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        with self._locked() as (tables, now):
            if by is not None:
                tables.audits.append(audited_prune(default, by, now))
            rules = RetentionRules(default, tables.queues.values(), tables.types)
            pruned: Counter[tuple[str, State]] = Counter()
            needed = tables.needed()
            for task in sorted(tables.tasks.values(), key=lambda t: t.id):
                if task.finished_at is None or pruned.total() == limit:
                    continue
                kept = rules.of(task.queue, task.type)
                if not finished_before(task, kept, tables.archive, now):
                    continue
                if task.id in needed and task.state is not State.DEAD:
                    continue
                tables.abandon(task.id, now, cancellation.pruned())
                tables.forget(task)
                pruned[task.queue, task.state] += 1
            for name in [n for n, key in tables.keys.items() if key.until is not None and key.until <= now]:
                del tables.keys[name]
            return Pruned(counts=pruned_counts(pruned), transitions=tuple(tables.transitions))

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        with self._locked() as (tables, _):
            return page_of([t for t in tables.tasks.values() if matches(t, where)], page, lambda t: t.id)

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> Sequence[Count]:
        found: dict[tuple[str, ...], list[Task]] = {} if by else {(): []}
        with self._locked() as (tables, _):
            for task in tables.tasks.values():
                if matches(task, where):
                    values = tuple(str(getattr(task, dimension.value) or "") for dimension in by)
                    found.setdefault(values, []).append(task)
        return [
            Count(
                values=values,
                number=len(tasks),
                oldest_at=min((task.due_at for task in tasks), default=None),
                steps=sum(map(steps_to_come, tasks)) if sized else 0,
                bytes=sum(map(bytes_of, tasks)) if sized else 0,
            )
            for values, tasks in sorted(found.items())
        ]

    async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
        with self._locked() as (tables, _):
            found = {task_id: tables.tasks.get(task_id) for task_id in ids}
            return tuple(task_id for task_id, task in found.items() if task is None or task.state in ENDED)

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        with self._locked() as (tables, _):
            return tuple(tables.attempts.get(task_id, ()))

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        with self._locked() as (tables, now):
            if isinstance(action, LoggedAction) and not is_about_tasks(action):
                tables.audits += logged(action, (), now)
                return Applied()
            if isinstance(action, Rewrite):
                return rewrite(tables, action, now)
            done: list[TaskId] = []
            ids = tables.tasks if where.expires_before is None else tables.expiring
            for task_id in sorted(ids):
                if len(done) == limit:
                    break
                # The cancellation of an earlier one may have changed or deleted it.
                current = tables.tasks.get(task_id)
                if (
                    current is not None
                    and matches(current, where)
                    and act(tables, action, current, now, len(done))
                ):
                    done.append(current.id)
            tables.wake(done)
            return Applied(ids=tuple(done), transitions=tuple(tables.transitions))

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        with self._locked() as (tables, now):
            before: Record | None
            if isinstance(record, QueueSettings):
                before = tables.queues.get(record.name)
                check_expected(record, expected, before)
                tables.queues[record.name] = record
                tables.relayout([record.name])
                tables.wake_queue(record.name)
            elif isinstance(record, StoredRecord):
                before = tables.kept[type(record)].get(record.name)
                check_expected(record, expected, before)
                tables.kept[type(record)][record.name] = record
                self._limit_changed(before, record)
            else:
                raise refusals.written_by_itself(record)
            if by is not None:
                tables.audits.append(audited_put(before, record, by, now))

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        with self._locked() as (tables, now):
            kinds: dict[object, Iterable[Any]] = {
                QueueSettings: tables.queues.values(),
                Session: tables.sessions.values(),
                Audit: tables.audits,
                Usage: usages(tables, now),
                **{kept: records.values() for kept, records in tables.kept.items()},
            }
            return page_of(list(kinds[kind]), page, _name)

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        with self._locked() as (tables, now):
            if kind is QueueSettings:
                removed = tables.queues.pop(name, None) is not None
                tables.relayout([name])
                tables.wake_queue(name)  # It may have been paused.
            elif kind is Session:
                removed = tables.sessions.pop(name, None) is not None
            elif kind in tables.kept:
                before = tables.kept[kind].pop(name, None)
                removed = before is not None
                self._limit_changed(before, None)
            else:
                raise refusals.not_removed(kind)
            if removed and by is not None:
                tables.audits.append(audited_removal(kind, name, by, now))
            return removed

    def _limit_changed(self, before: Record | None, after: Record | None) -> None:
        if isinstance(before, Limit) and (after is None or isinstance(after, Limit)):
            self._tables.settle_buckets(before, after, self.clock.now())
        if isinstance(before or after, Limit):
            self._tables.relayout(self._tables.ready.queues)
            self._tables.wake_queue(None)

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """Return an empty sequence: there is no schema."""
        return ()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:  # noqa: ARG002  as the protocol has it
        """Raise NotSupported: there is no schema."""
        raise NotSupported("the memory store has no schema to migrate")

    async def check(self) -> Sequence[Finding]:
        """Return a warning that nothing is persistent."""
        return (Finding(severity=Severity.WARNING, subject="durability", message=self.promise.why),)


def _name(record: Record) -> str:
    return record.id if isinstance(record, Session | Audit) else record.name


# -- tasks that are lost when the program ends ---------------------------------------------------------


logger = logging.getLogger("windlass.store")

_TESTS = "windlass.testing"  # imported by the harness, and in every run of pytest as a plugin


def report_at_exit(tables: Tables) -> None:
    """Log a warning when this process ends if tasks of these tables are lost with it; not in a test run."""
    _watched.add(tables)


def _report() -> None:
    if _TESTS in sys.modules:
        return
    lost = sum(task.state not in ENDED for tables in _watched for task in tables.tasks.values())
    if lost:
        logger.warning(
            "lost %d %s that had not ended: memory:// keeps tasks in the memory of this process, which ends. "
            "Run a worker in it, as with `async with app.worker():`, or use a store for several processes, "
            "such as sqlite:///windlass.db",
            lost,
            "task" if lost == 1 else "tasks",
        )


_watched: "weakref.WeakSet[Tables]" = weakref.WeakSet()
atexit.register(_report)
os.register_at_fork(after_in_child=_watched.clear)  # they are the parent's
