"""The questions that rules ask a store, and the unit of work that takes their changes.

A rule is a generator without I/O: it yields a question or a write, is sent the answer, and changes tasks
through `Changes`. SQLite answers at once in its writer thread, Postgres by statements of the script that it
plays. All of it happens in one transaction, and an answer must include the changes made so far.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from ..._model.attempt import Attempt
from ..._model.record import Audit
from ..._model.state import State, Verb
from ..._model.task import NewTask, Task, TaskId
from ..._model.transition import TaskTransition

T = TypeVar("T")
Q = TypeVar("Q")


class Changes(Protocol):
    """The unit of work of one transaction. A store may write changes at once, or all of them at the end."""

    now: datetime
    transitions: list[TaskTransition]  # that the reply to the verb is to report

    def move(self, task: Task, verb: Verb, state: State, **changes: Any) -> Task:
        """Change the state of a task by a valid transition, and wake the listeners of its queue."""

    def update(self, task: Task, **changes: Any) -> Task:
        """Change a task that keeps its state."""

    def note_outcome(self, task_id: TaskId, outcome: str) -> None:
        """Keep the outcome of a task that is about to complete; its last attempt is recorded in the task."""


class _OfTasks(Struct, frozen=True):
    ids: Sequence[TaskId]


# -- questions about tasks ---------------------------------------------------------------------------


class LoadTasks(_OfTasks, frozen=True):
    """Lock these tasks. Answer: Mapping[TaskId, Task] of those that exist.

    A store may leave out tasks that completed or were cancelled.
    """


class LoadJoins(_OfTasks, frozen=True):
    """Do the same, but leave out none of those that were cancelled: they may be replayed."""


class States(_OfTasks, frozen=True):
    """Answer: Mapping[TaskId, str], the state of each of these tasks that exists, ended or not."""


class EndedFences(_OfTasks, frozen=True):
    """Answer: Mapping[TaskId, int], the fences of ended tasks that `LoadTasks` left out."""


class Dependents(_OfTasks, frozen=True):
    """Answer: Sequence[TaskId], in the order of the predecessors: tasks that wait for any of these.

    Also tasks that no longer wait, but need the results until they have completed.
    """


class StillWaiting(_OfTasks, frozen=True):
    """Answer: Collection[TaskId], those of these tasks with a predecessor that has not completed."""


# -- questions about new tasks -----------------------------------------------------------------------


class Key(Struct, frozen=True):
    """The task that an idempotency key belongs to, and the digest of what was enqueued under it."""

    task_id: TaskId
    digest: str


class NewKey(Struct, frozen=True):
    """A key that a new task takes: its idempotency key, or one that keeps its fingerprint for a period."""

    tenant: str
    key: str
    task_id: TaskId
    digest: str
    lasts_for: timedelta | None  # None: as long as the task's record

    @property
    def name(self) -> tuple[str, str]:
        """By what stores and answers identify it."""
        return self.tenant, self.key

    def until(self, now: datetime) -> datetime | None:
        """Return when it expires if it is taken now."""
        if self.lasts_for is None:
            return None
        try:
            return now + self.lasts_for
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)


class TakenKeys(Struct, frozen=True):
    """Lock these keys, each once, and take those that are free for the tasks that want them.

    Answer: Mapping[tuple[tenant, key], Key] of those that were taken before and have not expired. A store may
    also take the others only with `InsertTasks`.
    """

    keys: Sequence[NewKey]


class TakenFingerprints(Struct, frozen=True):
    """Lock these fingerprints. Answer: Mapping[str, TaskId], the tasks that have one and have not ended."""

    fingerprints: Sequence[str]


class LockPredecessors(_OfTasks, frozen=True):
    """Keep these tasks from ending before the transaction does. Answer: as that of `States`."""


class DeclaredTypes(Struct, frozen=True):
    """Answer: Sequence[DeclaredType], the task types that programs have published."""


# -- writes ------------------------------------------------------------------------------------------


class InsertTasks(Struct, frozen=True):
    """Insert new tasks, the keys they take, and whom they wait for: pairs of predecessor and successor.

    While there is such a pair, the record of the predecessor is not pruned unless it is dead.

    Those in `waiting` start in state waiting; the others are scheduled or ready, depending on `run_at`.
    """

    tasks: Sequence[NewTask]
    waiting: Collection[TaskId]
    dependencies: Sequence[tuple[TaskId, TaskId]]
    keys: Sequence[NewKey]


class DropDependencies(_OfTasks, frozen=True):
    """Let these tasks wait for nothing any more, and need no results."""


class RecordAttempts(Struct, frozen=True):
    """Write the records of attempts, and keep the newest `MAX_RECORDED` of each task."""

    attempts: Sequence[Attempt]


class DeleteDead(Struct, frozen=True):
    """Delete dead tasks, their attempts and marks, and the idempotency keys that last as long as they do."""

    tasks: Sequence[Task]


class WriteAudit(Struct, frozen=True):
    """Add entries to the audit log."""

    entries: Sequence[Audit]


Question: TypeAlias = (
    LoadTasks
    | LoadJoins
    | States
    | EndedFences
    | Dependents
    | StillWaiting
    | TakenKeys
    | TakenFingerprints
    | LockPredecessors
    | DeclaredTypes
)
Write: TypeAlias = InsertTasks | DropDependencies | RecordAttempts | DeleteDead | WriteAudit

Rule: TypeAlias = Generator[Question | Write, Any, T]


def play(rule: Generator[Q, Any, T], answer: Callable[[Q], Any]) -> T:
    """Run a rule to its end with a store that answers at once; return its result."""
    try:
        question = next(rule)
        while True:
            question = rule.send(answer(question))
    except StopIteration as end:
        result: T = end.value
        return result
