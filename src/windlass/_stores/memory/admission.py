"""Enqueue: which tasks of a batch are new, which exist already, and which are refused."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from ..._model.state import State
from ..._model.task import Enqueued, NewTask, TaskId
from ..rules import cancellation, refusals
from ..rules.admission import check_due, idempotency_key, period_key
from ..rules.questions import NewKey
from .tables import Key, Tables


def admit(tables: Tables, batch: Sequence[NewTask], now: datetime) -> list[Enqueued]:
    """Insert all of the batch or none of it: first every check, then every write."""
    return _Admission(tables, now, refuses_duplicates=True).admit(batch)


def admit_successors(tables: Tables, batch: Sequence[NewTask], now: datetime) -> list[Enqueued]:
    """Do the same for the tasks that follow completed ones. Instead of refusing duplicates, cancel them."""
    return _Admission(tables, now, refuses_duplicates=False).admit(batch)


class _Admission:
    """One batch: what it adds to the tables once every task has been checked."""

    def __init__(self, tables: Tables, now: datetime, *, refuses_duplicates: bool) -> None:
        self._tables = tables
        self._now = now
        self._refuses_duplicates = refuses_duplicates
        self._new: dict[TaskId, NewTask] = {}
        self._keys: dict[tuple[str, str], Key] = {}
        self._standing: dict[str, TaskId] = {}
        self._duplicates: dict[TaskId, TaskId] = {}  # new task -> the one it is equal to

    def admit(self, batch: Sequence[NewTask]) -> list[Enqueued]:
        check_due(batch, self._now)
        enqueued = [self._admit(new) for new in batch]
        self._tables.keys.update(self._keys)
        self._tables.join_predecessors(self._new.values())
        doomed = {new.id: reason for new in self._new.values() if (reason := self._insert(new)) is not None}
        if not doomed:
            return enqueued
        return [replace(one, cancelled=doomed.get(one.id)) if one.created else one for one in enqueued]

    def _admit(self, new: NewTask) -> Enqueued:
        existing = self._existing(new)
        if existing is not None:
            return Enqueued(id=existing, created=False)
        for predecessor in new.after:
            if predecessor not in self._tables.tasks and predecessor not in self._new:
                raise refusals.no_predecessor(new, predecessor)
        self._take(idempotency_key(new))
        if new.id not in self._duplicates:
            self._take(period_key(new))
        self._new[new.id] = new
        return Enqueued(id=new.id, created=True)

    def _existing(self, new: NewTask) -> TaskId | None:
        """Return the task that this one repeats. Raises if it is refused; notes a duplicate that is not."""
        if new.id in self._tables.tasks or new.id in self._new:
            return new.id
        key = self._taken(idempotency_key(new))
        if key is not None:
            if key.digest != new.idempotency_digest:
                raise refusals.key_taken(new, key.task_id)
            return key.task_id
        return None if new.fingerprint is None else self._equal(new, new.fingerprint)

    def _equal(self, new: NewTask, fingerprint: str) -> TaskId | None:
        standing = self._standing.get(fingerprint) or self._tables.standing.get(fingerprint)
        period = self._taken(period_key(new))
        refusal = refusals.duplicate if standing or period is None else refusals.within_period
        equal = standing or (None if period is None else period.task_id)
        if equal is None:
            self._standing[fingerprint] = new.id
        elif equal == new.id:  # Its record was deleted after an enqueue whose reply was lost.
            return equal
        elif self._refuses_duplicates:
            raise refusal(new, equal)
        else:
            self._duplicates[new.id] = equal
        return None

    def _taken(self, key: NewKey | None) -> Key | None:
        if key is None:
            return None
        found = self._keys.get(key.name) or self._tables.keys.get(key.name)
        return None if found is None or (found.until is not None and found.until <= self._now) else found

    def _take(self, key: NewKey | None) -> None:
        if key is not None:
            self._keys[key.name] = Key(key.task_id, key.digest, key.until(self._now))

    def _insert(self, new: NewTask) -> str | None:
        """Insert a task; cancel it if it can never start, and return why."""
        tasks, equal = self._tables.tasks, self._duplicates.get(new.id)
        cancelled = [one for one in new.after if tasks[one].state is State.CANCELLED]
        # Of equal tasks only one that has not ended may be stored.
        task = self._tables.insert(new if equal is None else replace(new, fingerprint=None), self._now)
        if equal is None and not cancelled:
            return None
        why = cancellation.too_late(cancelled[0]) if equal is None else cancellation.duplicate(equal)
        self._tables.cancel_pending(task, self._now, why, fingerprint=new.fingerprint)
        return why.message
