"""What one transaction does to tasks: locked once, changed in memory, written in few strokes."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ..._model.state import State, Verb, targets
from ..._model.task import Task, TaskId
from .rows import columns_of, error_columns, ids_of, read_task
from .script import Row, Script, ask, value

SOON = timedelta(seconds=1.5)
"""What is due sooner than this is told to the keeper, who looks about once a second anyhow."""

_IN_HISTORY = frozenset({State.COMPLETED, State.CANCELLED})
_KEEP_COLUMNS, _END_COLUMNS = 17, 14


class UnitOfWork:
    """The tasks that a transaction has in hand, as they stand within it."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._tasks: dict[TaskId, Task] = {}
        self._numbers: dict[TaskId, int] = {}  # of the claims that granted them
        self._awaited: set[TaskId] = set()
        self._in_history: set[TaskId] = set()
        self._outcomes: dict[TaskId, str] = {}
        self._changed: dict[TaskId, Task] = {}
        self._news: set[str] = set()
        self._limited: set[TaskId] = set()  # of those loaded, the ones that count for limits
        self._freed = False  # what they counted for

    # -- looking up ----------------------------------------------------------------------------------

    def load(self, ids: Iterable[TaskId]) -> Script[None]:
        """Lock these tasks, in the order of their ids, as far as they have not ended; dead ones count."""
        missing = ids_of(task_id for task_id in ids if task_id not in self._tasks)
        if not missing:
            return
        for awaited, number, limited, *row in (yield from ask("load", missing)):
            task = read_task(row)
            self._tasks[task.id] = task
            self._numbers[task.id] = number
            if awaited:
                self._awaited.add(task.id)
            if limited:
                self._limited.add(task.id)

    def load_cancelled(self, ids: Iterable[TaskId]) -> Script[None]:
        """Lock these tasks as far as they lie cancelled in the history."""
        missing = ids_of(task_id for task_id in ids if task_id not in self._tasks)
        if missing:
            for row in (yield from ask("load_cancelled", missing)):
                task = read_task(row)
                self._tasks[task.id] = task
                self._in_history.add(task.id)

    def get(self, task_id: TaskId) -> Task | None:
        """A task that was loaded, as it stands now."""
        return self._tasks.get(task_id)

    def number(self, task_id: TaskId) -> int:
        """The number of the claim that granted its lease."""
        return self._numbers[task_id]

    def is_awaited(self, task_id: TaskId) -> bool:
        """Whether another task waits for this one."""
        return task_id in self._awaited

    # -- changing ------------------------------------------------------------------------------------

    def move(self, task: Task, verb: Verb, state: State, **changes: Any) -> Task:
        """The one way a single task changes state: along the table, or not at all."""
        assert state in targets(task.state, verb), f"{task.state} -> {verb} -> {state} is not in the table"
        moved = self.update(task, state=state, **changes)
        self.tell(moved)
        return moved

    def update(self, task: Task, **changes: Any) -> Task:
        """Change a task; `flush` writes it."""
        changed = replace(task, **changes)
        self._tasks[task.id] = self._changed[task.id] = changed
        return changed

    def note_outcome(self, task_id: TaskId, outcome: str) -> None:
        """What the handler came to, for the line that a completed task's own record is."""
        self._outcomes[task_id] = outcome

    def tell(self, task: Task) -> None:
        """Whoever waits for work shall hear of this task once it stands."""
        if task.state is State.READY:
            self._news.add(task.queue)
        elif task.state is State.SCHEDULED and task.run_at < self.now + SOON:
            self._news.add("")

    # -- writing -------------------------------------------------------------------------------------

    def flush(self) -> Script[None]:
        """Write what has changed so far."""
        changed = [self._changed[task_id] for task_id in sorted(self._changed)]
        self._freed |= any(task.id in self._limited and task.state is not State.RUNNING for task in changed)
        self._changed.clear()
        revived = [task for task in changed if task.id in self._in_history]
        ended = [task for task in changed if task.state in _IN_HISTORY]
        alive = [task for task in changed if task not in ended and task not in revived]
        if revived:
            yield from self._move_all("revive", [task.id for task in revived])
        if alive or revived:
            yield from self._write("keep", [_kept_row(task) for task in alive + revived], _KEEP_COLUMNS)
        if ended:
            yield from self._write("end", [self._ended_row(task) for task in ended], _END_COLUMNS)
            self._in_history.update(task.id for task in ended)

    def _move_all(self, name: str, ids: Sequence[TaskId]) -> Script[None]:
        yield from ask(name, ids)
        self._in_history.difference_update(ids)

    def _write(self, name: str, rows: Sequence[Row], columns: int) -> Script[None]:
        written = yield from value(name, *columns_of(rows, columns))
        assert written == len(rows), f"{len(rows) - written} tasks moved under their own transaction"

    def _ended_row(self, task: Task) -> Row:
        return (
            task.id,
            task.state.value,
            task.fence,
            task.attempt,
            task.run_at,
            task.finished_at,
            task.duration,
            self._outcomes.get(task.id),
            task.result,
            task.cancel_requested,
            *error_columns(task.error),
            task.worker,
        )

    def wake(self) -> Script[None]:
        """Tell whoever listens; the database passes it on when the transaction stands."""
        if self._news:
            yield from ask("wake", sorted(self._news))
            self._news.clear()
        if self._freed:
            yield from ask("wake_waiting")
            self._freed = False


def _kept_row(task: Task) -> Row:
    return (
        task.id,
        task.payload,
        task.state.value,
        task.attempt,
        task.fence,
        task.run_at,
        task.finished_at,
        task.session,
        task.duration,
        task.cancel_requested,
        None if task.progress is None else task.progress.fraction,
        None if task.progress is None else task.progress.message,
        *error_columns(task.error),
        task.worker,
        task.rank,
    )
