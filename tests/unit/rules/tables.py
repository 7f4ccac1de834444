"""A store of dictionaries: answers the rules' questions, takes their changes, and notes what was asked."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from tests.unit.samples import NOW, running
from windlass._model.attempt import Attempt
from windlass._model.options import DeclaredType
from windlass._model.record import Audit
from windlass._model.state import ENDED, State, Verb, targets
from windlass._model.task import NewTask, Task, TaskId
from windlass._model.transition import TaskTransition
from windlass._stores.rules import questions
from windlass._stores.rules.questions import Rule, play

T = TypeVar("T")


class Tables:
    """Tasks by id, and what hangs on them.

    `hides_ended` leaves completed and cancelled tasks out of questions.LoadTasks, as Postgres does.
    """

    def __init__(self, *tasks: Task, hides_ended: bool = False) -> None:
        self.now: datetime = NOW
        self.transitions: list[TaskTransition] = []
        self.tasks: dict[TaskId, Task] = {task.id: task for task in tasks}
        self.dependencies: list[tuple[TaskId, TaskId]] = []
        self.keys: dict[tuple[str, str], questions.Key] = {}
        self.attempts: list[Attempt] = []
        self.audits: list[Audit] = []
        self.types: list[DeclaredType] = []
        self.outcomes: dict[TaskId, str] = {}
        self.asked: list[questions.Question | questions.Write] = []
        self._hides_ended = hides_ended

    def run(self, rule: Rule[T]) -> T:
        """Run a rule to its end."""
        return play(rule, self._answer)

    def states(self) -> dict[TaskId, State]:
        """The state of every task."""
        return {task.id: task.state for task in self.tasks.values()}

    # -- changes -------------------------------------------------------------------------------------

    def move(self, task: Task, verb: Verb, state: State, **changes: Any) -> Task:
        """Change a task's state along the table."""
        assert state in targets(task.state, verb)
        return self.update(task, state=state, **changes)

    def update(self, task: Task, **changes: Any) -> Task:
        """Change a task that nobody has changed since it was loaded."""
        assert self.tasks[task.id] == task
        self.tasks[task.id] = replace(task, **changes)
        return self.tasks[task.id]

    def note_outcome(self, task_id: TaskId, outcome: str) -> None:
        """Keep an outcome."""
        self.outcomes[task_id] = outcome

    # -- answers -------------------------------------------------------------------------------------

    def _answer(self, question: questions.Question | questions.Write) -> Any:
        self.asked.append(question)
        return _ANSWERS[type(question)](self, question)

    def load(self, asked: questions.LoadTasks) -> dict[TaskId, Task]:
        """Tasks by id."""
        found = {task_id: self.tasks[task_id] for task_id in asked.ids if task_id in self.tasks}
        gone = {State.COMPLETED, State.CANCELLED} if self._hides_ended else set()
        return {task_id: task for task_id, task in found.items() if task.state not in gone}

    def still_waiting(self, asked: questions.StillWaiting) -> set[TaskId]:
        """Those with a predecessor that has not completed."""
        return {
            successor
            for predecessor, successor in self.dependencies
            if successor in asked.ids and self.tasks[predecessor].state is not State.COMPLETED
        }

    def insert(self, asked: questions.InsertTasks) -> None:
        """New tasks."""
        for new in asked.tasks:
            state = State.WAITING if new.id in asked.waiting else State.READY
            self.tasks[new.id] = running(
                id=new.id, state=state, attempt=0, fence=0, after=new.after, fingerprint=new.fingerprint
            )
        self.keys |= {key.name: questions.Key(key.task_id, key.digest) for key in asked.keys}
        self.dependencies += asked.dependencies

    def drop(self, asked: questions.DropDependencies) -> None:
        """What these waited for."""
        self.dependencies = [pair for pair in self.dependencies if pair[1] not in asked.ids]

    def delete(self, asked: questions.DeleteDead) -> None:
        """Dead tasks."""
        for task in asked.tasks:
            assert self.tasks.pop(task.id).state is State.DEAD


def _fingerprints(tables: Tables, asked: questions.TakenFingerprints) -> dict[str, TaskId]:
    return {
        task.fingerprint: task.id
        for task in tables.tasks.values()
        if task.fingerprint is not None and task.fingerprint in asked.fingerprints and task.state not in ENDED
    }


_ANSWERS: dict[type, Callable[[Tables, Any], Any]] = {
    questions.LoadTasks: Tables.load,
    questions.States: lambda tables, asked: {i: s for i, s in tables.states().items() if i in asked.ids},
    questions.LockPredecessors: lambda tables, asked: {
        i: s for i, s in tables.states().items() if i in asked.ids
    },
    questions.EndedFences: lambda tables, asked: {
        i: tables.tasks[i].fence for i in asked.ids if i in tables.tasks
    },
    questions.Dependents: lambda tables, asked: [s for p, s in tables.dependencies if p in asked.ids],
    questions.StillWaiting: Tables.still_waiting,
    questions.TakenKeys: lambda tables, asked: {
        one.name: tables.keys[one.name] for one in asked.keys if one.name in tables.keys
    },
    questions.TakenFingerprints: _fingerprints,
    questions.DeclaredTypes: lambda tables, _: tables.types,
    questions.InsertTasks: Tables.insert,
    questions.DropDependencies: Tables.drop,
    questions.RecordAttempts: lambda tables, asked: tables.attempts.extend(asked.attempts),
    questions.DeleteDead: Tables.delete,
    questions.WriteAudit: lambda tables, asked: tables.audits.extend(asked.entries),
}


def new_task(task_id: TaskId, **options: Any) -> NewTask:
    """A task to enqueue."""
    return NewTask(id=task_id, type="mail.send", payload=b"{}", root=task_id, queue="mail", **options)


def waiting(task_id: TaskId, *, tables: Tables, after: tuple[TaskId, ...]) -> None:
    """Add a task that waits for others."""
    tables.tasks[task_id] = running(id=task_id, state=State.WAITING, attempt=0, fence=0, after=after)
    tables.dependencies += [(predecessor, task_id) for predecessor in after]
