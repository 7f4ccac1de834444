"""One request's part of a write transaction: its statements, its clock, and the wakes that follow."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..._model.state import ENDED, State, Verb, targets
from ..._model.task import Task, TaskId
from ..._model.transition import TaskTransition
from ..._policy.order.limits import Subject, split_key
from ..rules.queue_rules import NO_LANE, QueueRules, read_rules
from .connection.open import has_wal_fix, is_wal, set_journal
from .rows import Row, changed_row, instant, listed, read_permits, statement


class Wakes:
    """What became claimable or due; listeners are woken after the commit."""

    def __init__(self) -> None:
        self.ready: set[str] = set()  # queues
        self.scheduled = False
        self.limits_changed = False
        self.freed: Counter[str] = Counter()  # permits released, less those taken by the claim that followed
        self.wait: float | None = None  # seconds until a rate limit lets more tasks start

    def __bool__(self) -> bool:
        return bool(self.ready) or self.scheduled or self.wait is not None or self.affects_all_queues

    @property
    def affects_all_queues(self) -> bool:
        """Whether tasks that a limit held back may start, in any queue."""
        return self.limits_changed or any(number > 0 for number in self.freed.values())

    def merge(self, other: "Wakes") -> None:
        """Add the wakes of another request of the same transaction."""
        self.ready |= other.ready
        self.scheduled = self.scheduled or other.scheduled
        # A permit that one request released and the next took may have been missed by a third.
        self.limits_changed = self.limits_changed or other.affects_all_queues
        waits = [wait for wait in (self.wait, other.wait) if wait is not None]
        self.wait = min(waits, default=None)

    def add(self, state: State, queue: str) -> None:
        """Note that a task of this queue entered this state."""
        if state is State.READY:
            self.ready.add(queue)
        elif state is State.SCHEDULED:
            self.scheduled = True


def begin(connection: sqlite3.Connection, path: Path) -> None:
    """Begin a write transaction, in a journal mode in which this SQLite is safe."""
    connection.execute("BEGIN IMMEDIATE")
    if is_wal(connection) and not has_wal_fix(sqlite3.sqlite_version_info):
        connection.execute("ROLLBACK")
        set_journal(connection, path)
        connection.execute("BEGIN IMMEDIATE")


class Transaction:
    """Statements by name, within a transaction that the caller began and will commit."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self.now = now
        self.at = instant(now)  # in microseconds
        self.wakes = Wakes()
        self.transitions: list[TaskTransition] = []
        self._cursor = connection.cursor()
        self._cursor.row_factory = None  # A caller's own connection may have one.
        self._queue_rules: QueueRules | None = None
        self._outcomes: dict[TaskId, str] = {}

    @property
    def queue_rules(self) -> QueueRules:
        """The settings of queues and the limits, read on first use."""
        if self._queue_rules is None:
            self._queue_rules = read_rules(tuple(self.rows("rules")))
        return self._queue_rules

    def rules_changed(self) -> None:
        """Read settings and limits again, as this transaction has written some."""
        self._queue_rules = None

    def run(self, name: str, parameters: Mapping[str, object] | None = None) -> int:
        """Execute a statement; return the number of rows changed."""
        return self._cursor.execute(statement(name), parameters or {}).rowcount

    def run_exactly(self, number: int, name: str, parameters: Mapping[str, object]) -> bool:
        """Execute a statement if it changes this number of rows, otherwise undo it; return whether it did."""
        self._cursor.execute("SAVEPOINT windlass_point")
        is_done = self.run(name, parameters) == number
        if not is_done:
            self._cursor.execute("ROLLBACK TO windlass_point")
        self._cursor.execute("RELEASE windlass_point")
        return is_done

    def run_many(self, name: str, rows: Sequence[Row] | Sequence[Mapping[str, object]]) -> int:
        """Execute a statement for each row of parameters; return the number of rows changed in all."""
        return self._cursor.executemany(statement(name), rows).rowcount if rows else 0

    def rows(self, name: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """Return all rows of a statement."""
        return self._cursor.execute(statement(name), parameters or {}).fetchall()

    def select(self, sql: str, parameters: Mapping[str, object]) -> list[Row]:
        """Return all rows of a statement built by read/filters.py."""
        return self._cursor.execute(sql, parameters).fetchall()

    def value(self, name: str, parameters: Mapping[str, object] | None = None) -> Any:
        """Return the first column of the first row, or None."""
        row = self._cursor.execute(statement(name), parameters or {}).fetchone()
        return None if row is None else row[0]

    def move(self, task: Task, verb: Verb, state: State, **changes: Any) -> Task:
        assert state in targets(task.state, verb), f"{task.state} -> {verb} -> {state} is not in the table"
        if state in ENDED:
            changes["unhandled_since"] = None
        elif state is State.READY:
            changes["boost"] = self.queue_rules.boost(task.queue, task.priority)
        moved = self.update(task, state=state, **changes)
        self.wakes.add(state, task.queue)
        return moved

    def update(self, task: Task, **changes: Any) -> Task:
        """Change a task, which must not have been changed since it was read; return the new one."""
        changed = replace(task, **changes)
        if task.state is State.RUNNING and changed.state is not State.RUNNING:
            self.wakes.freed.update(self.caps_held([task.id]))
        parameters = {
            **changed_row(changed, self._place(changed)),
            "outcome": self._outcomes.pop(task.id, None),
            "fence_before": task.fence,
            "state_before": task.state.value,
        }
        written = self.run("keep", parameters)
        assert written == 1, f"task {task.id} was changed by another statement of its own transaction"
        return changed

    def note_outcome(self, task_id: TaskId, outcome: str) -> None:
        self._outcomes[task_id] = outcome

    def _place(self, task: Task) -> tuple[str, str]:
        if task.state is not State.READY or self.queue_rules.is_fifo(task.queue):
            return NO_LANE
        return self.queue_rules.lane_and_key(
            Subject(task.queue, task.type, task.tenant, task.payload), task.priority
        )

    def caps_held(self, ids: Iterable[TaskId]) -> "Counter[str]":
        """Count the permits of capped limits that these running tasks hold; their end lets others start."""
        capped = self.queue_rules.capped
        if not capped:
            return Counter()
        found = (read_permits(text) for (text,) in self.rows("permitted", {"ids": listed(ids)}))
        return Counter(key for permits in found for key in permits if split_key(key)[0] in capped)
