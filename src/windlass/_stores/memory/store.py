"""The verbs of the seam over a shelf in memory."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from ..._clock import Clock, SystemClock
from ..._model.attempt import Attempt
from ..._model.filter import Action, By, Count, Dimension, Filter, Page, Slice, page_of
from ..._model.lease import RESCUED, Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.limit import Limit, Usage
from ..._model.queue import QueueSettings, Retention
from ..._model.record import Audit, Record, Session, StoredRecord
from ..._model.state import State, Verb
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ..._model.verdict import Settled, Settlement
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
from ..rules import refusals
from ..rules.audit import audited_prune, audited_put, audited_removal
from ..rules.claim_planner import Rotation
from .actions import act
from .leases import grant, hand_back_strangers, leased, settle_one
from .matching import finished_before, matches
from .shelf import Shelf
from .usage import usages

R = TypeVar("R", bound=Record)

_PROMISE = Promise(durability=Durability.VOLATILE, why="kept in this process's memory only")


class MemoryStore:
    """A store in this process's memory: for tests, and as the specification of the others."""

    capabilities = Capability(0)
    promise = _PROMISE

    def __init__(self, *, clock: Clock | None = None, _shelf: Shelf | None = None) -> None:
        self.clock = clock or SystemClock()
        self._shelf = _shelf or Shelf()
        self._turns = Rotation(random.random)
        self._later = Timer(lambda: self._shelf.wake_queue(None))  # when time alone lets more start

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to let go of."""

    def another(self) -> "MemoryStore":
        """A further handle on the same shelf."""
        return MemoryStore(clock=self.clock, _shelf=self._shelf)

    async def now(self) -> datetime:
        """The clock's now."""
        return self.clock.now()

    # -- enqueue -------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Keep all of the batch or none of it."""
        with self._shelf.lock:
            answers = self._shelf.admit(batch, self.clock.now())
            self._shelf.wake(new.id for new in batch)
        return answers

    def join(self, connection: object) -> Join:  # noqa: ARG002  the seam's shape
        """There is no transaction to join."""
        raise NotSupported("the memory store has no transactions to enqueue within; use sqlite:///…")

    # -- work ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease ready tasks to a live session."""
        with self._shelf.lock:
            now = self.clock.now()
            self._alive(claim.session, now)
            return self._grant(claim, now)

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdicts whose leases hold, then claim."""
        with self._shelf.lock:
            now = self.clock.now()
            receipts = tuple([settle_one(self._shelf, settlement, now) for settlement in batch])
            if batch and self._shelf.limits:
                self._shelf.wake_queue(None)  # What a limit held up may go now, wherever it waits.
            if claim is None or not self._is_alive(claim.session, now):
                return Settled(receipts=receipts)
            return Settled(receipts=receipts, claimed=tuple(self._grant(claim, now)))

    def _grant(self, claim: Claim, now: datetime) -> list[Claimed]:
        given = grant(self._shelf, claim, self._turns, now)
        if given.wait is not None:
            self._later.at(asyncio.get_running_loop().time() + given.wait)
        return given.claimed

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renew the session; hand back strangers; report losses and requests to stop."""
        shelf = self._shelf
        with shelf.lock:
            now = self.clock.now()
            session = shelf.sessions.get(beat.session)
            if session is None and not beat.opening:
                return HeartbeatReply(alive=False)
            shelf.sessions[beat.session] = Session(
                id=beat.session,
                worker=beat.worker,
                started_at=session.started_at if session else now,
                beat_at=now,
                expires_at=now + beat.lease_for,
            )
            hand_back_strangers(shelf, beat, now)
            for reported in beat.progress:
                task = leased(shelf, reported.lease)
                if task is not None:
                    shelf.keep(replace(task, progress=reported.progress))
            held = [(lease, leased(shelf, lease)) for lease in beat.held]
            return HeartbeatReply(
                alive=True,
                lost=tuple(lease for lease, task in held if task is None),
                cancel=tuple(task.id for _, task in held if task is not None and task.cancel_requested),
            )

    def transaction(self) -> NoReturn:
        """There is no database to have a transaction on."""
        raise NotSupported("the memory store has no transactions to complete a task in; use sqlite:///…")

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark the key; whether this lease was the first to."""
        with self._shelf.lock:
            if leased(self._shelf, lease) is None:
                raise refusals.lease_lost(lease, key)
            return self._shelf.marks.setdefault(lease.task_id, {}).setdefault(key, lease.fence) == lease.fence

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """A hint for every change that may matter to these queues; several at once become one."""
        loop = asyncio.get_running_loop()
        hints: set[Wake] = set()
        changed = asyncio.Event()

        def hint(wake: Wake) -> None:
            hints.add(wake)
            changed.set()

        listener = (frozenset(queues), lambda wake: loop.call_soon_threadsafe(hint, wake))
        self._shelf.listeners.append(listener)
        try:
            while True:
                await changed.wait()
                changed.clear()
                for wake in sorted(hints):
                    hints.discard(wake)
                    yield wake
        finally:
            self._shelf.listeners.remove(listener)

    def _alive(self, session: str, now: datetime) -> None:
        if not self._is_alive(session, now):
            raise refusals.session_lost(session)

    def _is_alive(self, session: str, now: datetime) -> bool:
        found = self._shelf.sessions.get(session)
        return found is not None and found.expires_at > now

    # -- keep ----------------------------------------------------------------------------------------

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """Take, keep or give up the lead."""
        with self._shelf.lock:
            now = self.clock.now()
            leader = self._shelf.leader
            # A lead for longer than anybody asks for was granted before the clock was set back.
            if (
                leader is not None
                and leader[0] != holder
                and (not lease_for or now < leader[1] <= now + lease_for)
            ):
                return False
            self._shelf.leader = (holder, now + lease_for) if lease_for else None
            return bool(lease_for)

    async def promote(self, limit: int) -> Promoted:
        """Make due tasks ready."""
        with self._shelf.lock:
            now = self.clock.now()
            promoted: list[TaskId] = []
            while (task := self._shelf.next_scheduled()) is not None and len(promoted) < limit:
                if task.run_at > now:
                    break
                self._shelf.move(task, Verb.PROMOTE, State.READY)
                promoted.append(task.id)
            self._shelf.wake(promoted)
            return Promoted(number=len(promoted), next_at=None if task is None else task.run_at)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Take over the running tasks of sessions that have expired."""
        shelf = self._shelf
        with shelf.lock:
            now = self.clock.now()
            self._alive(session, now)
            rescued: list[Claimed] = []
            for silent in [s for s in shelf.held if not self._is_alive(s, now)]:
                for task_id in list(shelf.held[silent])[: limit - len(rescued)]:
                    task = shelf.tasks[task_id]
                    shelf.release(task)
                    shelf.hold(session, task_id, RESCUED)
                    moved = shelf.move(
                        task, Verb.RESCUE, State.RUNNING, fence=task.fence + 1, session=session
                    )
                    rescued.append(Claimed(moved))
            for gone in [s for s in shelf.sessions if not self._is_alive(s, now) and s not in shelf.held]:
                del shelf.sessions[gone]
            return rescued

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """Delete what retention no longer covers."""
        shelf = self._shelf
        with shelf.lock:
            now = self.clock.now()
            if by is not None:
                shelf.audits.append(audited_prune(retention, by, now))
            pruned = 0
            needed = {p for t in shelf.tasks.values() if t.state is State.WAITING for p in t.after}
            for task in sorted(shelf.tasks.values(), key=lambda t: t.id):
                settings = shelf.queues.get(task.queue)
                kept = settings.retention if settings and settings.retention else retention
                if pruned == limit or not finished_before(task, kept, now):
                    continue
                if task.id in needed and task.state is not State.DEAD:
                    continue
                shelf.abandon(task.id, now, "died and was pruned")
                shelf.forget(task)
                pruned += 1
            for name in [n for n, key in shelf.keys.items() if key.until is not None and key.until <= now]:
                del shelf.keys[name]
            return pruned

    # -- ask -----------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """The tasks that match, by id."""
        with self._shelf.lock:
            return page_of([t for t in self._shelf.tasks.values() if matches(t, where)], page, lambda t: t.id)

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """How many match, by the values of each dimension."""
        due: dict[tuple[str, ...], list[datetime]] = {} if by else {(): []}
        with self._shelf.lock:
            for task in self._shelf.tasks.values():
                if matches(task, where):
                    values = tuple(str(getattr(task, dimension.value)) for dimension in by)
                    due.setdefault(values, []).append(task.due_at)
        return [
            Count(values=values, number=len(instants), oldest_at=min(instants, default=None))
            for values, instants in sorted(due.items())
        ]

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The lines of a task's attempts."""
        with self._shelf.lock:
            return tuple(self._shelf.attempts.get(task_id, ()))

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Do it to those that match and allow it."""
        with self._shelf.lock:
            now = self.clock.now()
            done: list[TaskId] = []
            for task in sorted(self._shelf.tasks.values(), key=lambda t: t.id):
                if len(done) == limit:
                    break
                # An earlier one's cancellation may have changed or removed this one.
                current = self._shelf.tasks.get(task.id)
                if current is not None and matches(current, where) and act(self._shelf, action, current, now):
                    done.append(current.id)
            self._shelf.wake(done)
            return done

    async def put(self, record: Record, by: By | None = None) -> None:
        """Keep a record in place of the one of the same name. Some kinds are the store's own to write."""
        with self._shelf.lock:
            if isinstance(record, QueueSettings):
                self._shelf.queues[record.name] = record
                self._shelf.rearrange([record.name])
                self._shelf.wake_queue(record.name)
            elif isinstance(record, StoredRecord):
                before = self._shelf.kept[type(record)].get(record.name)
                self._shelf.kept[type(record)][record.name] = record
                self._limit_changed(before, record)
            else:
                raise refusals.written_by_itself(record)
            if by is not None:
                self._shelf.audits.append(audited_put(record, by, self.clock.now()))

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """The records of a kind, by name."""
        with self._shelf.lock:
            kinds: dict[object, Iterable[Any]] = {
                QueueSettings: self._shelf.queues.values(),
                Session: self._shelf.sessions.values(),
                Audit: self._shelf.audits,
                Usage: usages(self._shelf, self.clock.now()),
                **{kept: records.values() for kept, records in self._shelf.kept.items()},
            }
            return page_of(list(kinds[kind]), page, _name)

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Forget a record; what a session held becomes rescuable."""
        with self._shelf.lock:
            if kind is QueueSettings:
                removed = self._shelf.queues.pop(name, None) is not None
                self._shelf.rearrange([name])
                self._shelf.wake_queue(name)  # It may have been paused.
            elif kind is Session:
                removed = self._shelf.sessions.pop(name, None) is not None
            elif kind in self._shelf.kept:
                before = self._shelf.kept[kind].pop(name, None)
                removed = before is not None
                self._limit_changed(before, None)
            else:
                raise refusals.not_removed(kind)
            if removed and by is not None:
                self._shelf.audits.append(audited_removal(kind, name, by, self.clock.now()))
            return removed

    def _limit_changed(self, before: Record | None, now: Record | None) -> None:
        if isinstance(before, Limit) and (now is None or isinstance(now, Limit)):
            self._shelf.settle_buckets(before, now, self.clock.now())
        if isinstance(before or now, Limit):
            self._shelf.rearrange(self._shelf.ready.queues)
            self._shelf.wake_queue(None)

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """Memory has no schema."""
        return ()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:  # noqa: ARG002  the seam's shape
        """Memory has no schema."""
        raise NotSupported("the memory store has no schema to migrate")

    async def check(self) -> Sequence[Finding]:
        """Says that nothing lasts."""
        return (Finding(severity=Severity.WARNING, subject="durability", message=_PROMISE.why),)


def _name(record: Record) -> str:
    return record.id if isinstance(record, Session | Audit) else record.name
