"""Enqueue: which tasks of a batch are new, which exist already, and which are refused."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ..._model.state import State
from ..._model.task import EARLIEST, MAX_DELAY, Enqueued, NewTask, Task, TaskId
from . import cancellation, questions, refusals
from .questions import Changes, Rule
from .successors import cancel_pending

_AT_ONCE = timedelta(0)


def check_due(batch: Sequence[NewTask], now: datetime) -> None:
    """Raise InvalidOption for a task that is due before 1970 or more than ten years from now.

    Likewise for one that expires more than ten years after it could be due, or before it is due.
    """
    for new in batch:
        if new.run_at is not None and not EARLIEST <= new.run_at <= now + MAX_DELAY:
            raise refusals.run_at_out_of_range(new.run_at)
        if new.delay is not None and not _AT_ONCE <= new.delay <= MAX_DELAY:
            raise refusals.delay_out_of_range(new.delay)
        if new.expires_at is not None or new.expires_in is not None:
            _check_expiry(new, now)


def _check_expiry(new: NewTask, now: datetime) -> None:
    if new.expires_in is not None and not _AT_ONCE <= new.expires_in <= MAX_DELAY:
        raise refusals.expiry_out_of_range(str(new.expires_in))
    if new.expires_at is None:
        return
    if not EARLIEST <= new.expires_at <= now + 2 * MAX_DELAY:
        raise refusals.expiry_out_of_range(new.expires_at.isoformat())
    due = new.run_at if new.delay is None else now + new.delay
    if due is not None and new.expires_at <= due:
        raise refusals.expires_before_due(new.expires_at, due)


def is_plain(new: NewTask) -> bool:
    """Whether a task has neither key nor fingerprint nor dependencies, so that only its id is looked up."""
    return new.idempotency_key is None and new.fingerprint is None and not (new.after or new.before)


def admit(changes: Changes, batch: Sequence[NewTask]) -> Rule[list[Enqueued]]:
    """Insert the tasks of a batch that are new; report the existing task for the others.

    Raises if any is refused; the caller must then roll back.
    """
    return (yield from _Admission(changes).admit(batch))


class _Admission:
    """One batch. Tasks admitted so far count for the checks of the rest."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._states: dict[TaskId, str] = {}  # of existing tasks and of those admitted
        self._keys: dict[tuple[str, str | None], questions.Key] = {}
        self._fingerprints: dict[str, TaskId] = {}
        self._waiting: Mapping[TaskId, Task] = {}  # existing tasks that may wait for new ones
        self._new: list[NewTask] = []

    def admit(self, batch: Sequence[NewTask]) -> Rule[list[Enqueued]]:
        check_due(batch, self._changes.now)
        self._states.update((yield questions.States([new.id for new in batch])))
        fresh = [new for new in batch if new.id not in self._states]
        if not all(map(is_plain, fresh)):
            yield from self._lock(fresh)
        enqueued = [self._admit(new) for new in batch]
        if self._new:
            yield from self._insert()
        return enqueued

    def _lock(self, fresh: Sequence[NewTask]) -> Rule[None]:
        """Lock what the checks depend on, for the whole batch and in an order common to all clients."""
        keyed: dict[tuple[str, str], NewTask] = {}
        for new in fresh:
            if new.idempotency_key is not None:
                keyed.setdefault((new.tenant, new.idempotency_key), new)
        if keyed:
            self._keys.update((yield questions.TakenKeys([keyed[name] for name in sorted(keyed)])))
        fingerprints = sorted({new.fingerprint for new in fresh if new.fingerprint is not None})
        if fingerprints:
            self._fingerprints.update((yield questions.TakenFingerprints(fingerprints)))
        predecessors = sorted({predecessor for new in fresh for predecessor in new.after})
        if predecessors:
            self._states.update((yield questions.LockPredecessors(predecessors)))
        waiting = sorted({task_id for new in fresh for task_id in new.before})
        if waiting:
            self._waiting = yield questions.LoadTasks(waiting)
        # Any of these locks may have waited for an earlier attempt at this batch whose reply was lost.
        self._states.update((yield questions.States([new.id for new in fresh])))

    # -- checks --------------------------------------------------------------------------------------

    def _admit(self, new: NewTask) -> Enqueued:
        existing = new.id if new.id in self._states else self._by_key(new)
        if existing is not None:
            return Enqueued(id=existing, created=False)
        if new.fingerprint is not None:
            if new.fingerprint in self._fingerprints:
                raise refusals.duplicate(new, self._fingerprints[new.fingerprint])
            self._fingerprints[new.fingerprint] = new.id
        for predecessor in new.after:
            if predecessor not in self._states:
                raise refusals.no_predecessor(new, predecessor)
        if new.idempotency_key is not None:
            self._keys[new.tenant, new.idempotency_key] = questions.Key(new.id, new.idempotency_digest)
        self._states[new.id] = self._first_state(new) if new.after else State.READY
        self._new.append(new)
        is_doomed = self._states[new.id] == State.CANCELLED
        return Enqueued(
            id=new.id, created=True, cancelled=self._too_late(new.after).message if is_doomed else None
        )

    def _first_state(self, new: NewTask) -> str:
        """Waiting, ready (also if it is not yet due), or cancelled if it can never start."""
        before = {self._states[predecessor] for predecessor in new.after}
        if State.CANCELLED in before:
            return State.CANCELLED
        return State.WAITING if before - {State.COMPLETED} else State.READY

    def _by_key(self, new: NewTask) -> TaskId | None:
        key = self._keys.get((new.tenant, new.idempotency_key))
        if key is None:
            return None
        if key.digest != new.idempotency_digest:
            raise refusals.key_taken(new, key.task_id)
        return key.task_id

    def _waits(self, task_id: TaskId) -> bool:
        task = self._waiting.get(task_id)
        return task is not None and task.state is State.WAITING

    # -- writes --------------------------------------------------------------------------------------

    def _insert(self) -> Rule[None]:
        linked = [new for new in self._new if new.after]
        waiting = [new for new in linked if self._states[new.id] == State.WAITING]
        doomed = [new.id for new in linked if self._states[new.id] == State.CANCELLED]
        dependencies = {(predecessor, new.id) for new in waiting for predecessor in new.after}
        dependencies |= {(new.id, one) for new in self._new for one in new.before if self._waits(one)}
        yield questions.InsertTasks(self._new, {*doomed, *(new.id for new in waiting)}, sorted(dependencies))
        if doomed:
            # They are inserted first, so that the store keeps a record of them.
            tasks: Mapping[TaskId, Task] = yield questions.LoadTasks(doomed)
            for task_id in doomed:
                task = tasks[task_id]
                yield from cancel_pending(self._changes, task, self._too_late(task.after))

    def _too_late(self, after: Sequence[TaskId]) -> cancellation.Cancellation:
        return cancellation.too_late(next(one for one in after if self._states[one] == State.CANCELLED))
