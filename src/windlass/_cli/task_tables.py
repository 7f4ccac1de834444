"""How tasks and attempts look to people."""

from collections.abc import Sequence
from datetime import datetime

from .._model.attempt import Attempt
from .._model.state import State
from .._model.task import Error, Task
from .._policy.input.chain import Step, decode_steps
from .documents import compact, shown_payload
from .output import Column, Output, Styled
from .time_text import ago, span, stamp

_STYLES = {
    State.WAITING: "dim",
    State.SCHEDULED: "yellow",
    State.READY: "cyan",
    State.RUNNING: "bold blue",
    State.COMPLETED: "green",
    State.CANCELLED: "dim",
    State.DEAD: "bold red",
}


def state(task: Task) -> Styled:
    """Where a task is, in its colour."""
    return str(task.state), _STYLES[task.state]


def task_columns(now: datetime) -> Sequence[Column[Task]]:
    """A table of tasks."""
    return (
        Column("id", lambda task: task.id),
        Column("state", state),
        Column("type", lambda task: task.type, elastic=True, keeps_end=True),
        Column("tries", _tries, right=True),
        Column("when", lambda task: ago(_moment(task), now)),
        Column("queue", lambda task: task.queue, optional=True),
        Column("tenant", lambda task: task.tenant, optional=True),
        Column("error", lambda task: _brief(task.error), elastic=True, optional=True),
    )


def dead_columns(now: datetime) -> Sequence[Column[Task]]:
    """A table of dead letters: what died, when, and of what."""
    return (
        Column("id", lambda task: task.id),
        Column("died", lambda task: ago(task.finished_at, now)),
        Column("type", lambda task: task.type, elastic=True, keeps_end=True),
        Column("error", lambda task: (_brief(task.error), "red"), elastic=True),
        Column("tries", _tries, right=True, optional=True),
        Column("queue", lambda task: task.queue, optional=True),
        Column("tenant", lambda task: task.tenant, optional=True),
    )


def attempt_columns(now: datetime) -> Sequence[Column[Attempt]]:
    """A table of attempts, oldest first."""
    return (
        Column("attempt", lambda attempt: str(attempt.number), right=True),
        Column("claimed", lambda attempt: ago(attempt.claimed_at, now)),
        Column("ran", lambda attempt: span(attempt.duration), right=True),
        Column("outcome", lambda attempt: attempt.outcome),
        Column("worker", lambda attempt: attempt.worker or "", elastic=True, keeps_end=True),
        Column("error", lambda attempt: (_brief(attempt.error), "red"), elastic=True, optional=True),
    )


def show_task(output: Output, task: Task, now: datetime, *, reveal: bool) -> None:
    """Everything about one task, a field a line."""
    output.fields(
        [
            ("id", task.id),
            ("type", task.type),
            ("state", state(task)),
            ("cancelling", ("asked to stop", "yellow") if task.cancel_requested else ""),
            ("queue", task.queue),
            ("tenant", task.tenant),
            ("priority", str(task.priority)),
            ("attempts", f"{task.attempt} of {task.max_attempts}"),
            ("created", stamp(task.created_at, now)),
            ("run at", stamp(task.run_at, now)),
            ("claimed", stamp(task.claimed_at, now)),
            ("ended", stamp(task.finished_at, now)),
            ("ran", "" if task.duration is None else span(task.duration)),
            ("timeout", "" if task.timeout is None else span(task.timeout.total_seconds())),
            ("worker", task.worker or ""),
            ("progress", _progress(task)),
            ("root", "" if task.root == task.id else task.root),
            ("after", "\n".join(task.after)),
            ("next", "\n".join(_steps(decode_steps(task.next)))),
            ("key", task.idempotency_key or ""),
            ("enqueued by", task.enqueued_by),
            ("trace", task.trace or ""),
            ("payload", compact(shown_payload(task.payload, task.secret, reveal=reveal))),
            ("result", _result(task, reveal=reveal)),
            ("error", (_error(task.error), "red")),
        ]
    )


def show_traceback(output: Output, error: Error | None) -> None:
    """Where it went wrong, if that was kept."""
    if error is not None and error.traceback:
        output.heading("traceback")
        output.fields([("", error.traceback.rstrip())])


def _tries(task: Task) -> str:
    return f"{task.attempt}/{task.max_attempts}"


def _moment(task: Task) -> datetime:
    """The instant that says most about a task in its state."""
    match task.state:
        case State.SCHEDULED:
            return task.run_at
        case State.RUNNING:
            return task.claimed_at or task.created_at
        case State.WAITING | State.READY:
            return task.created_at
        case State.COMPLETED | State.CANCELLED | State.DEAD:
            return task.finished_at or task.created_at


def _error(error: Error | None) -> str:
    return "" if error is None else f"{error.type}: {error.message}"


def _brief(error: Error | None) -> str:
    """An error for a narrow cell: its type without the modules."""
    return "" if error is None else f"{error.type.rpartition('.')[2]}: {error.message}"


def _progress(task: Task) -> str:
    return "" if task.progress is None else f"{task.progress.fraction:.0%} {task.progress.message}".rstrip()


def _result(task: Task, *, reveal: bool) -> str:
    return "" if task.result is None else compact(shown_payload(task.result, task.secret, reveal=reveal))


def _steps(steps: Sequence[Step], level: int = 0) -> list[str]:
    shown: list[str] = []
    for step in steps:
        shown += [f"{'  ' * level}{step.id} {step.type}", *_steps(step.next, level + 1)]
    return shown
