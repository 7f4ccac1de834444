"""The tables of a memory store, their indexes, and the transitions of a task."""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from ..._model.attempt import Attempt
from ..._model.filter import Replay
from ..._model.lease import Claim
from ..._model.limit import Limit
from ..._model.options import DeclaredType
from ..._model.queue import QueueSettings
from ..._model.record import ARCHIVE_NAME, KINDS, Archive, Audit, Session, StoredRecord
from ..._model.state import ENDED, REPLAYABLE, State, Verb, targets
from ..._model.task import NewTask, Task, TaskId, expiry_of, may_need_results
from ..._model.transition import TaskTransition, transition_of
from ..._policy.order.limits import PermitUsage, changes_refill, key_range, tokens_at
from ..._policy.order.rank import boost
from ..._store.protocol import Wake
from ..rules import cancellation
from ..rules.cancellation import Cancellation
from .ready import Bucket, Heap, Ready

_GIVEN = {*NewTask.__struct_fields__} & {*Task.__struct_fields__} - {"run_at", "expires_at"}
"""Fields of a new task that it keeps as they are."""


class Key(Struct, frozen=True):
    """The task of an idempotency key, and until when (None: as long as the task is kept)."""

    task_id: TaskId
    digest: str
    until: datetime | None


class Tables:
    """All state of a memory store. Every operation holds `lock` throughout."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tasks: dict[TaskId, Task] = {}
        self.attempts: dict[TaskId, list[Attempt]] = {}
        self.marks: dict[TaskId, dict[str, int]] = {}  # task -> key marked by `once` -> fence that marked it
        self.keys: dict[tuple[str, str], Key] = {}
        self.standing: dict[str, TaskId] = {}  # fingerprint -> the task that has not ended
        self.successors: dict[TaskId, dict[TaskId, None]] = {}  # predecessor -> tasks that wait for it
        self.predecessors: dict[TaskId, set[TaskId]] = {}  # waiting task -> those it still waits for
        self.joined: dict[TaskId, list[TaskId]] = {}  # task -> those enqueued `before` it that it needs
        self.expiring: set[TaskId] = set()  # tasks with an expiry, which the keeper looks for every second
        self.sessions: dict[str, Session] = {}
        self.held: dict[str, dict[TaskId, int]] = {}  # session that holds any -> task -> claim number
        self.queues: dict[str, QueueSettings] = {}
        self.audits: list[Audit] = []
        self.kept: dict[object, dict[str, StoredRecord]] = {kind: {} for kind in KINDS}
        self.leader: tuple[str, datetime] | None = None
        self.listeners: list[tuple[frozenset[str], Callable[[Wake], object]]] = []
        self.buckets: dict[str, Bucket] = {}  # permit's key -> starts left, and when that was so
        self.transitions: list[TaskTransition] = []  # that the reply to the current verb is to report
        self.ready = Ready(self.tasks)
        # A heap with stale entries, which are skipped when they come up.
        self._scheduled: list[tuple[datetime, TaskId]] = []

    # -- transitions ---------------------------------------------------------------------------------

    def move(self, task: Task, verb: Verb, state: State, **changes: object) -> Task:
        """Change the state of a task by a valid transition."""
        assert state in targets(task.state, verb), f"{task.state} -> {verb} -> {state} is not in the table"
        if state in ENDED:
            changes["unhandled_since"] = None
        elif state is State.READY:
            changes["boost"] = boost(task.priority, self.queues.get(task.queue))
        moved = replace(task, state=state, **changes)
        self.keep(moved)
        return moved

    def step(self, task: Task, verb: Verb, state: State, **changes: object) -> Task:
        """Change the state of a task, and report it in the reply."""
        moved = self.move(task, verb, state, **changes)
        self.transitions.append(transition_of(verb, moved))
        return moved

    def keep(self, task: Task) -> None:
        """Store a task and update the indexes."""
        self.tasks[task.id] = task
        if task.expires_at is not None:
            self.expiring.add(task.id)
        if task.state is State.READY:
            self.ready.put(task, self.queues.get(task.queue), self.limits)
        elif task.state is State.SCHEDULED:
            heappush(self._scheduled, (task.run_at, task.id))
        if task.fingerprint is not None:
            if task.state in ENDED:
                if self.standing.get(task.fingerprint) == task.id:
                    del self.standing[task.fingerprint]
            else:
                self.standing[task.fingerprint] = task.id

    def forget(self, task: Task) -> None:
        """Delete a task and everything about it, except an idempotency key that is kept for longer."""
        del self.tasks[task.id]
        self.expiring.discard(task.id)
        self.attempts.pop(task.id, None)
        self.marks.pop(task.id, None)
        self.successors.pop(task.id, None)
        for predecessor in self.predecessors.pop(task.id, ()):
            self.successors.get(predecessor, {}).pop(task.id, None)
        self.joined.pop(task.id, None)
        if task.idempotency_key is not None:
            key = self.keys.get((task.tenant, task.idempotency_key))
            if key is not None and key.task_id == task.id and key.until is None:
                del self.keys[task.tenant, task.idempotency_key]

    # -- enqueue -------------------------------------------------------------------------------------

    def join_predecessors(self, new: Iterable[NewTask]) -> None:
        """Let tasks that wait already wait for those of these, too, that are enqueued `before` them."""
        for task in new:
            for waiting in task.before:
                if waiting not in self.tasks:
                    continue
                self.joined.setdefault(waiting, []).append(task.id)
                if self.tasks[waiting].state is State.WAITING:
                    self.successors.setdefault(task.id, {})[waiting] = None
                    self.predecessors[waiting].add(task.id)

    def needed(self) -> set[TaskId]:
        """Return the tasks that another waits for, or whose results it needs until it has completed."""
        found: set[TaskId] = set()
        for task in self.tasks.values():
            if task.state is State.WAITING or (task.state is not State.COMPLETED and may_need_results(task)):
                found.update(task.after, self.joined.get(task.id, ()))
        return found

    def insert(self, new: NewTask, now: datetime) -> Task:
        """Insert a task that was admitted, and return it."""
        run_at = new.run_at or (now if new.delay is None else now + new.delay)
        pending = [p for p in dict.fromkeys(new.after) if self.tasks[p].state is not State.COMPLETED]
        for predecessor in pending:
            self.successors.setdefault(predecessor, {})[new.id] = None
        if pending:
            self.predecessors[new.id] = set(pending)
        state = State.WAITING if pending else State.SCHEDULED if run_at > now else State.READY
        given = {name: getattr(new, name) for name in _GIVEN}
        given["boost"] = boost(new.priority, self.queues.get(new.queue))
        given["run_at"], given["created_at"], given["expires_at"] = run_at, now, expiry_of(new, run_at, now)
        self.keep(Task(**given, state=state, attempt=0, fence=0))
        return self.tasks[new.id]

    # -- order ---------------------------------------------------------------------------------------

    def take_ready(self, queues: Iterable[str], claim: Claim) -> list[Task]:
        """Take the tasks of a claim off the heaps, lowest (rank, id) first over all of these queues."""
        heaps = [heap for name in queues if (heap := self.ready.single_heap(name)) is not None]
        taken: list[Task] = []
        others: list[tuple[Heap, tuple[int, TaskId]]] = []  # of types that are not claimed
        while len(taken) < claim.limit and (fresh := [heap for heap in heaps if self.ready.is_fresh(heap)]):
            heap = min(fresh, key=lambda heap: heap[0])
            entry = heappop(heap)
            task = self.tasks[entry[1]]
            if claim.takes(task.type):
                taken.append(task)
            else:
                others.append((heap, entry))
        for heap, entry in others:
            heappush(heap, entry)
        return taken

    def relayout(self, queues: Iterable[str]) -> None:
        """Move the ready tasks of queues to their lanes, keys and ranks under current settings and limits."""
        changed = set(queues)
        for queue in changed:
            self.ready.clear(queue)
        # Not from the heaps: claims have taken expired tasks out of them.
        for task in [one for one in self.tasks.values() if one.queue in changed]:
            if task.state is State.READY:
                self.keep(replace(task, boost=boost(task.priority, self.queues.get(task.queue))))

    def settle_buckets(self, before: Limit, after: Limit | None, now: datetime) -> None:
        """Refill the buckets of a limit as it was, before the change applies."""
        if changes_refill(before, after):
            first, below = key_range(before)
            for key in [key for key in self.buckets if first <= key < below]:
                self.buckets[key] = (tokens_at(before, PermitUsage(0, *self.buckets[key]), now), now)

    @property
    def archive(self) -> Archive | None:
        """Return how far history was archived; None if archiving is off."""
        record = self.kept[Archive].get(ARCHIVE_NAME)
        return record if isinstance(record, Archive) else None

    @property
    def limits(self) -> list[Limit]:
        """Return all limits."""
        return [record for record in self.kept[Limit].values() if isinstance(record, Limit)]

    @property
    def types(self) -> list[DeclaredType]:
        """Return all task types that programs have published."""
        return [record for record in self.kept[DeclaredType].values() if isinstance(record, DeclaredType)]

    def next_scheduled(self) -> Task | None:
        """Return the scheduled task that is due first, or None."""
        while self._scheduled:
            run_at, task_id = self._scheduled[0]
            task = self.tasks.get(task_id)
            if task is not None and task.state is State.SCHEDULED and task.run_at == run_at:
                return task
            heappop(self._scheduled)
        return None

    # -- wakes ---------------------------------------------------------------------------------------

    def wake(self, changed: Iterable[TaskId]) -> None:
        """Notify listeners of those of these tasks that are ready or scheduled."""
        if not self.listeners:
            return
        tasks = [self.tasks[task_id] for task_id in changed if task_id in self.tasks]
        ready = {task.queue for task in tasks if task.state is State.READY}
        for queues, hint in self.listeners:
            if not ready.isdisjoint(queues):
                hint(Wake.READY)
            if any(task.state is State.SCHEDULED for task in tasks):
                hint(Wake.SCHEDULED)

    def wake_queue(self, queue: str | None) -> None:
        """Notify listeners that a queue, or any (None), may have tasks to claim."""
        for queues, hint in self.listeners:
            if queue is None or queue in queues:
                hint(Wake.READY)

    def hold(self, session: str, task_id: TaskId, number: int) -> None:
        """Record which session holds a task, and by which claim."""
        self.held.setdefault(session, {})[task_id] = number

    def release(self, task: Task) -> None:
        """Remove a task from those its session holds; drop a session's entry when it is empty."""
        held = self.held.get(task.session or "", {})
        held.pop(task.id, None)
        if not held:
            self.held.pop(task.session or "", None)

    # -- successors ----------------------------------------------------------------------------------

    def unblock(self, predecessor: TaskId, now: datetime) -> list[TaskId]:
        """Unblock the tasks that waited only for this one, which completed; return their ids."""
        freed = []
        for successor in self.successors.pop(predecessor, {}):
            task = self.tasks.get(successor)
            still = self.predecessors.get(successor, set())
            still.discard(predecessor)
            if still or task is None or task.state is not State.WAITING:
                continue
            early = task.run_at > now
            self.step(task, Verb.UNBLOCK, State.SCHEDULED if early else State.READY)
            freed.append(successor)
        return freed

    def abandon(self, predecessor: TaskId, now: datetime, why: Cancellation) -> None:
        """Cancel the tasks that wait for this one, which can never complete, and their successors."""
        for successor in self.successors.pop(predecessor, {}):
            task = self.tasks.get(successor)
            if task is not None and task.state is State.WAITING:
                self.cancel_pending(task, now, why.of_successor(predecessor))

    def cancel_pending(self, task: Task, now: datetime, why: Cancellation, **fields: object) -> None:
        """Cancel a task that has not started, change these fields of it, and cancel its successors."""
        self.step(task, Verb.CANCEL, State.CANCELLED, finished_at=now, **why.fields, **fields)
        self.abandon(task.id, now, why)

    def replay(self, task: Task, action: Replay, run_at: datetime, now: datetime) -> bool:
        """Replay a dead or cancelled task with all its attempts left; return False if that is not allowed."""
        fingerprint = action.fingerprint_of(task)
        if task.state not in REPLAYABLE or fingerprint in self.standing:
            return False
        self.step(
            task,
            Verb.REPLAY,
            State.SCHEDULED if run_at > now else State.READY,
            attempt=0,
            run_at=run_at,
            payload=task.payload if action.payload is None else action.payload,
            fingerprint=fingerprint,
            finished_at=None,
            cancel_requested=False,
            progress=None,
            expires_at=None,
            **cancellation.asked_by(None),
        )
        return True
