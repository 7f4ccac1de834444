"""The unit of work of one transaction: tasks are locked once, changed in memory and written together."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ..._model.state import ENDED, State, Verb, targets
from ..._model.task import Task, TaskId
from ..._model.transition import TaskTransition
from .notify import Wakes
from .queue_layout import QueueLayout
from .rows import HISTORY, Row, columns_of, error_columns, ids_of, read_task
from .script import Script, fetch, value

_KEEP_COLUMNS, _END_COLUMNS = 24, 17


class UnitOfWork:
    """The tasks that a transaction has loaded, with its changes so far."""

    def __init__(self, now: datetime, layout: QueueLayout) -> None:
        self.now = now
        self.transitions: list[TaskTransition] = []
        self._layout = layout
        self._tasks: dict[TaskId, Task] = {}
        self._numbers: dict[TaskId, int] = {}  # of the claims that granted them
        self._awaited: set[TaskId] = set()
        self._in_history: set[TaskId] = set()
        self._outcomes: dict[TaskId, str] = {}
        self._changed: dict[TaskId, Task] = {}
        self._wakes = Wakes(now)
        self._limited: set[TaskId] = set()  # loaded tasks that hold permits
        self._freed = False  # Permits were returned.

    # -- read ----------------------------------------------------------------------------------------

    def load(self, ids: Iterable[TaskId]) -> Script[None]:
        """Lock and load those of these tasks that have not ended or are dead, in the order of their ids."""
        missing = ids_of(task_id for task_id in ids if task_id not in self._tasks)
        if not missing:
            return
        for awaited, number, limited, *row in (yield from fetch("load_tasks", missing)):
            task = read_task(row)
            self._tasks[task.id] = task
            self._numbers[task.id] = number
            if awaited:
                self._awaited.add(task.id)
            if limited:
                self._limited.add(task.id)

    def load_cancelled(self, ids: Iterable[TaskId]) -> Script[None]:
        """Lock and load those of these tasks that were cancelled."""
        missing = ids_of(task_id for task_id in ids if task_id not in self._tasks)
        if missing:
            for row in (yield from fetch("load_cancelled", missing)):
                task = read_task(row)
                self._tasks[task.id] = task
                self._in_history.add(task.id)

    def get(self, task_id: TaskId) -> Task | None:
        """Return a task with its changes; None if it was not loaded."""
        return self._tasks.get(task_id)

    def number(self, task_id: TaskId) -> int:
        """Return the number of the claim that leased a loaded task."""
        return self._numbers[task_id]

    def is_awaited(self, task_id: TaskId) -> bool:
        return task_id in self._awaited

    # -- change --------------------------------------------------------------------------------------

    def move(self, task: Task, verb: Verb, state: State, **changes: Any) -> Task:
        assert state in targets(task.state, verb), f"{task.state} -> {verb} -> {state} is not in the table"
        if state in ENDED:
            changes["unhandled_since"] = None
        elif state is State.READY:
            changes["boost"] = task.priority * self._layout.head_start(task.queue)
        moved = self.update(task, state=state, **changes)
        self._wakes.add(moved.state, moved.queue, moved.run_at)
        return moved

    def update(self, task: Task, **changes: Any) -> Task:
        """Change a task; `flush` writes it."""
        changed = replace(task, **changes)
        self._tasks[task.id] = self._changed[task.id] = changed
        return changed

    def note_outcome(self, task_id: TaskId, outcome: str) -> None:
        self._outcomes[task_id] = outcome

    # -- write ---------------------------------------------------------------------------------------

    def flush(self) -> Script[None]:
        """Write the changes made so far."""
        changed = [self._changed[task_id] for task_id in sorted(self._changed)]
        self._freed |= any(task.id in self._limited and task.state is not State.RUNNING for task in changed)
        self._changed.clear()
        revived = [task for task in changed if task.id in self._in_history]
        ended = [task for task in changed if task.state in HISTORY]
        alive = [task for task in changed if task not in ended and task not in revived]
        if revived:
            ids = [task.id for task in revived]
            yield from fetch("revive", ids)
            self._in_history.difference_update(ids)
        if alive or revived:
            yield from _write("update_tasks", [_kept_row(task) for task in alive + revived], _KEEP_COLUMNS)
        if ended:
            yield from _write("end_tasks", [self._ended_row(task) for task in ended], _END_COLUMNS)
            self._in_history.update(task.id for task in ended)

    def _ended_row(self, task: Task) -> Row:
        return (
            task.id, task.state.value, task.fence, task.attempt, task.run_at, task.finished_at, task.duration,
            self._outcomes.get(task.id), task.result, task.cancel_requested, *error_columns(task.error),
            task.worker, task.cancelled_by, task.cancel_reason, task.fingerprint,
        )  # fmt: skip

    def wake(self) -> Script[None]:
        """Notify listeners; the database delivers it when the transaction commits."""
        if self._wakes:
            yield from fetch("wake", self._wakes.payloads())
            self._wakes.clear()
        if self._freed:
            yield from fetch("wake_all")
            self._freed = False


def _write(name: str, rows: Sequence[Row], columns: int) -> Script[None]:
    written = yield from value(name, *columns_of(rows, columns))
    assert written == len(rows), (
        f"{len(rows) - written} tasks were changed by another transaction while they were locked"
    )


def _kept_row(task: Task) -> Row:
    progress = (None, None) if task.progress is None else (task.progress.fraction, task.progress.message)
    return (
        task.id, task.payload, task.state.value, task.attempt, task.fence, task.run_at, task.finished_at,
        task.session, task.duration, task.cancel_requested, *progress, *error_columns(task.error),
        task.worker, task.boost, task.rank, task.unhandled_since, task.expires_at, task.cancelled_by,
        task.cancel_reason, task.fingerprint, task.failure,
    )  # fmt: skip
