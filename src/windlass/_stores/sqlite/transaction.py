"""One request's part of a write transaction: its statements, its now, and whom to wake once it stands."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ..._model.state import State, Verb, targets
from ..._model.task import Task, TaskId
from .rows import Row, changed_row, instant, task_reader
from .statements import statement


class News:
    """What became claimable or due, for the wakes that follow the commit."""

    def __init__(self) -> None:
        self.ready: set[str] = set()  # queues
        self.scheduled = False

    def __bool__(self) -> bool:
        return bool(self.ready) or self.scheduled

    def add(self, other: "News") -> None:
        """Take in another request's news."""
        self.ready |= other.ready
        self.scheduled = self.scheduled or other.scheduled

    def tell(self, state: State, queue: str) -> None:
        """A task of this queue has come to this state."""
        if state is State.READY:
            self.ready.add(queue)
        elif state is State.SCHEDULED:
            self.scheduled = True


class Transaction:
    """Statements by name, within a transaction that somebody else began and will commit."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self.now = now
        self.at = instant(now)  # the same in microseconds
        self.news = News()
        self._cursor = connection.cursor()
        self._cursor.row_factory = None  # A caller's own connection may have one.

    def run(self, name: str, parameters: Mapping[str, object] | None = None) -> int:
        """Execute a statement; answers with the number of rows changed."""
        return self._cursor.execute(statement(name), parameters or {}).rowcount

    def run_many(self, name: str, rows: Sequence[Row] | Sequence[Mapping[str, object]]) -> int:
        """Execute a statement once for each row of parameters; answers with the rows changed in all."""
        return self._cursor.executemany(statement(name), rows).rowcount if rows else 0

    def rows(self, name: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """All rows of a statement."""
        return self._cursor.execute(statement(name), parameters or {}).fetchall()

    def select(self, sql: str, parameters: Mapping[str, object]) -> list[Row]:
        """All rows of a statement that was put together by filters.py."""
        return self._cursor.execute(sql, parameters).fetchall()

    def value(self, name: str, parameters: Mapping[str, object] | None = None) -> Any:
        """The first column of the first row, or None."""
        row = self._cursor.execute(statement(name), parameters or {}).fetchone()
        return None if row is None else row[0]

    def get(self, task_id: TaskId) -> Task | None:
        """A task as it stands."""
        found = self.rows("get", {"id": task_id})
        return task_reader()(found[0]) if found else None

    def move(self, task: Task, verb: Verb, state: State, **changes: object) -> Task:
        """The one way a single task changes state: along the table, or not at all."""
        assert state in targets(task.state, verb), f"{task.state} -> {verb} -> {state} is not in the table"
        moved = replace(task, state=state, **changes)
        self.keep(task, moved)
        self.news.tell(state, task.queue)
        return moved

    def keep(self, before: Task, after: Task) -> None:
        """Store what has become of a task."""
        parameters = {**changed_row(after), "fence_before": before.fence, "state_before": before.state.value}
        changed = self.run("keep", parameters)
        assert changed == 1, f"task {before.id} moved under its own transaction"

    def save(self) -> None:
        """Mark this point, to come back to it or not."""
        self._cursor.execute("SAVEPOINT windlass_point")

    def undo(self) -> None:
        """Go back to the marked point."""
        self._cursor.execute("ROLLBACK TO windlass_point")
        self.forget_saved()

    def forget_saved(self) -> None:
        """Keep what was done since the marked point."""
        self._cursor.execute("RELEASE windlass_point")
