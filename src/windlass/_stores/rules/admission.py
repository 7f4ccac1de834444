"""Enqueue: which tasks of a batch are new, which exist already, and which are refused."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from ..._model.state import State
from ..._model.task import (
    EARLIEST,
    MAX_DELAY,
    RESERVED,
    Enqueued,
    NewTask,
    Task,
    TaskId,
    is_expiry,
    may_need_results,
)
from . import cancellation, questions, refusals
from .questions import Changes, NewKey, Rule
from .successors import cancel_pending

_AT_ONCE = timedelta(0)


def check_due(batch: Sequence[NewTask], now: datetime) -> None:
    """Raise InvalidOption for a task that is due before 1970 or more than ten years from now.

    Likewise for one that expires more than ten years after it could be due, or no later than it is due.
    """
    for new in batch:
        if new.run_at is not None and not EARLIEST <= new.run_at <= now + MAX_DELAY:
            raise refusals.run_at_out_of_range(new.run_at)
        if new.delay is not None and not _AT_ONCE <= new.delay <= MAX_DELAY:
            raise refusals.delay_out_of_range(new.delay)
        if new.expires_at is not None or new.expires_in is not None:
            _check_expiry(new, now)


def _check_expiry(new: NewTask, now: datetime) -> None:
    if new.expires_in is not None and not is_expiry(new.expires_in):
        raise refusals.expires_in_out_of_range(new.expires_in)
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


def idempotency_key(new: NewTask) -> NewKey | None:
    """Return the idempotency key that a task takes."""
    if new.idempotency_key is None:
        return None
    return NewKey(new.tenant, new.idempotency_key, new.id, new.idempotency_digest, new.idempotency_for)


def period_key(new: NewTask) -> NewKey | None:
    """Return the key that keeps a task's fingerprint for its period, also after the task has ended."""
    if new.fingerprint is None or new.unique_for is None:
        return None
    return NewKey(new.tenant, f"{RESERVED}unique:{new.fingerprint}", new.id, "", new.unique_for)


def admit(changes: Changes, batch: Sequence[NewTask]) -> Rule[list[Enqueued]]:
    """Insert the tasks of a batch that are new; report the existing task for the others.

    Raises if any is refused; the caller must then roll back.
    """
    return (yield from _Admission(changes).admit(batch))


def admit_successors(changes: Changes, batch: Sequence[NewTask]) -> Rule[list[Enqueued]]:
    """Do the same for the tasks that follow completed ones. Instead of refusing duplicates, cancel them."""
    return (yield from _Admission(changes, refuses_duplicates=False).admit(batch))


class _Admission:
    """One batch. Tasks admitted so far count for the checks of the rest."""

    def __init__(self, changes: Changes, *, refuses_duplicates: bool = True) -> None:
        self._changes = changes
        self._refuses_duplicates = refuses_duplicates
        self._states: dict[TaskId, str] = {}  # of existing tasks and of those admitted
        self._taken: dict[tuple[str, str], questions.Key] = {}  # keys, by tenant and name
        self._fingerprints: dict[str, TaskId] = {}
        self._waiting: Mapping[TaskId, Task] = {}  # existing tasks that may wait for new ones
        self._new: list[NewTask] = []
        self._keys: list[NewKey] = []  # that the new tasks take
        self._duplicates: dict[TaskId, TaskId] = {}  # new tasks to cancel -> the tasks they are equal to

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
        yield from self._take(key for new in fresh if (key := idempotency_key(new)) is not None)
        # Tasks before fingerprints, as when a settlement enqueues successors.
        predecessors = sorted({predecessor for new in fresh for predecessor in new.after})
        if predecessors:
            self._states.update((yield questions.LockPredecessors(predecessors)))
        waiting = sorted({task_id for new in fresh for task_id in new.before})
        if waiting:
            self._waiting = yield questions.LoadJoins(waiting)
        fingerprints = sorted({new.fingerprint for new in fresh if new.fingerprint is not None})
        if fingerprints:
            self._fingerprints.update((yield questions.TakenFingerprints(fingerprints)))
            yield from self._take(self._periods(fresh))
        # Any of these locks may have waited for an earlier attempt at this batch whose reply was lost.
        self._states.update((yield questions.States([new.id for new in fresh])))

    def _take(self, keys: Iterable[NewKey]) -> Rule[None]:
        wanted: dict[tuple[str, str], NewKey] = {}
        for key in keys:
            wanted.setdefault(key.name, key)
        if wanted:
            self._taken.update((yield questions.TakenKeys([wanted[name] for name in sorted(wanted)])))

    def _periods(self, fresh: Sequence[NewTask]) -> Iterator[NewKey]:
        """Yield the keys of periods, but not those of tasks that exist or are equal to open ones."""
        names, fingerprints = set(self._taken), set(self._fingerprints)
        for new in fresh:
            key, period = idempotency_key(new), period_key(new)
            if (key is not None and key.name in names) or new.fingerprint in fingerprints:
                continue
            if key is not None:
                names.add(key.name)
            if new.fingerprint is not None:
                fingerprints.add(new.fingerprint)
            if period is not None:
                yield period

    # -- checks --------------------------------------------------------------------------------------

    def _admit(self, new: NewTask) -> Enqueued:
        existing = new.id if new.id in self._states else self._by_key(new)
        if existing is None and new.fingerprint is not None:
            existing = self._by_fingerprint(new, new.fingerprint)
        if existing is not None:
            return Enqueued(id=existing, created=False)
        for predecessor in new.after:
            if predecessor not in self._states:
                raise refusals.no_predecessor(new, predecessor)
        key = idempotency_key(new)
        if key is not None:
            self._taken[key.name] = questions.Key(new.id, key.digest)
            self._keys.append(key)
        self._states[new.id] = self._first_state(new)
        self._new.append(new)
        is_doomed = self._states[new.id] == State.CANCELLED
        reason = self._reason(new).message if is_doomed else None
        return Enqueued(id=new.id, created=True, cancelled=reason)

    def _first_state(self, new: NewTask) -> str:
        """Waiting, ready (also if it is not yet due), or cancelled if it can never start."""
        before = {self._states[predecessor] for predecessor in new.after}
        if State.CANCELLED in before or new.id in self._duplicates:
            return State.CANCELLED
        return State.WAITING if before - {State.COMPLETED} else State.READY

    def _by_key(self, new: NewTask) -> TaskId | None:
        key = idempotency_key(new)
        taken = None if key is None else self._taken.get(key.name)
        if taken is None:
            return None
        if taken.digest != new.idempotency_digest:
            raise refusals.key_taken(new, taken.task_id)
        return taken.task_id

    def _by_fingerprint(self, new: NewTask, fingerprint: str) -> TaskId | None:
        """Take the fingerprint for a new task, and its period. Returns its id if it had taken that before."""
        standing, refusal = self._fingerprints.get(fingerprint), refusals.duplicate
        period = period_key(new)
        if standing is None and period is not None and period.name in self._taken:
            standing, refusal = self._taken[period.name].task_id, refusals.within_period
        if standing == new.id:  # Its record was deleted after an enqueue whose reply was lost.
            return standing
        if standing is not None and self._refuses_duplicates:
            raise refusal(new, standing)
        if standing is not None:
            self._duplicates[new.id] = standing
            return None
        self._fingerprints[fingerprint] = new.id
        if period is not None:
            self._taken[period.name] = questions.Key(new.id, period.digest)
            self._keys.append(period)
        return None

    def _needs(self, new: NewTask) -> bool:
        """Whether a new task waits for its predecessors, or needs their results whenever it runs."""
        return self._states[new.id] == State.WAITING or may_need_results(new)

    def _waits(self, task_id: TaskId) -> bool:
        """Whether an existing task waits for those enqueued `before` it, or needs their results."""
        task = self._waiting.get(task_id)
        if task is None or task.state is State.COMPLETED:
            return False
        return task.state is State.WAITING or may_need_results(task)

    # -- writes --------------------------------------------------------------------------------------

    def _insert(self) -> Rule[None]:
        waiting = [new for new in self._new if self._states[new.id] == State.WAITING]
        doomed = [new for new in self._new if self._states[new.id] == State.CANCELLED]
        needy = [new for new in self._new if self._needs(new)]
        dependencies = {(predecessor, new.id) for new in needy for predecessor in new.after}
        dependencies |= {(new.id, one) for new in self._new for one in new.before if self._waits(one)}
        # Of equal tasks only one that has not ended may be stored.
        tasks = [replace(new, fingerprint=None) if new.id in self._duplicates else new for new in self._new]
        unstarted = {new.id for new in (*doomed, *waiting)}
        yield questions.InsertTasks(tasks, unstarted, sorted(dependencies), self._keys)
        if doomed:
            # They are inserted first, so that the store keeps a record of them.
            stored: Mapping[TaskId, Task] = yield questions.LoadTasks([new.id for new in doomed])
            for new in doomed:
                why, fingerprint = self._reason(new), new.fingerprint
                yield from cancel_pending(self._changes, stored[new.id], why, fingerprint=fingerprint)

    def _reason(self, doomed: NewTask) -> cancellation.Cancellation:
        """Return why a new task is cancelled at once."""
        if doomed.id in self._duplicates:
            return cancellation.duplicate(self._duplicates[doomed.id])
        return cancellation.too_late(
            next(one for one in doomed.after if self._states[one] == State.CANCELLED)
        )
