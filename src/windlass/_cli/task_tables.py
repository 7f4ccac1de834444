"""Tasks and attempts as tables and as lists of fields."""

from collections.abc import Sequence
from datetime import datetime

from .._documents.fields import shown_json
from .._documents.workers import StuckDocument, WorkerDocument
from .._model.attempt import Attempt
from .._model.filter import Failure
from .._model.state import State
from .._model.task import Error, Task
from .._policy.input.chain import Step, readable_steps
from .output import Column, Output, Styled
from .task_ids import ID_PREFIX
from .text import ago, duration_text, json_text, span, stamp

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
    """The state in its colour."""
    return str(task.state), _STYLES[task.state]


def task_columns(now: datetime) -> Sequence[Column[Task]]:
    """The columns of a table of tasks."""
    return (
        Column("id", lambda task: task.id, prefix=ID_PREFIX),
        Column("state", state),
        Column("type", lambda task: task.type, elastic=True, keeps_end=True),
        Column("attempt", _attempt, right=True),
        Column("when", lambda task: ago(_moment(task), now)),
        Column("queue", lambda task: task.queue, optional=True),
        Column("tenant", lambda task: task.tenant, optional=True),
        Column("error", lambda task: _brief(task.error), elastic=True, optional=True),
    )


def dead_columns(now: datetime) -> Sequence[Column[Task]]:
    """The columns of a table of dead letters."""
    return (
        Column("id", lambda task: task.id, prefix=ID_PREFIX),
        Column("died", lambda task: ago(task.finished_at, now)),
        Column("type", lambda task: task.type, elastic=True, keeps_end=True),
        Column("error", lambda task: (_brief(task.error), "red"), elastic=True),
        Column("attempt", _attempt, right=True, optional=True),
        Column("queue", lambda task: task.queue, optional=True),
        Column("tenant", lambda task: task.tenant, optional=True),
    )


def failure_columns(now: datetime) -> Sequence[Column[Failure]]:
    """The columns of a table of failures."""
    return (
        Column("failure", lambda failure: failure.id or "-"),
        Column("tasks", _number, right=True),
        Column("type", lambda failure: failure.type, elastic=True, keeps_end=True),
        Column("error", lambda failure: (_brief(failure.error), "red"), elastic=True),
        Column("first", lambda failure: ago(failure.first_at, now), optional=True),
        Column("last", lambda failure: ago(failure.last_at, now)),
        Column("queues", lambda failure: " ".join(failure.queues), elastic=True, optional=True),
    )


def attempt_columns(now: datetime) -> Sequence[Column[Attempt]]:
    """The columns of a table of attempts."""
    return (
        Column("attempt", lambda attempt: str(attempt.number), right=True),
        Column("claimed", lambda attempt: ago(attempt.claimed_at, now)),
        Column("ran", lambda attempt: span(attempt.duration), right=True),
        Column("outcome", lambda attempt: attempt.outcome),
        Column("error", lambda attempt: (_brief(attempt.error), "red"), elastic=True, optional=True),
        Column("notes", _notes, elastic=True, optional=True),
        Column("worker", lambda attempt: attempt.worker or "", elastic=True, keeps_end=True, optional=True),
    )


def show_task(
    output: Output, task: Task, now: datetime, stuck: tuple[WorkerDocument, StuckDocument] | None = None
) -> None:
    """Print every field of a task, also its handler that runs on after its timeout; its traceback last."""
    progress = f"{task.progress.fraction:.0%} {task.progress.message}".rstrip() if task.progress else ""
    result = "" if task.result is None else json_text(shown_json(task.result))
    output.fields(
        [
            ("id", task.id),
            ("type", task.type),
            ("state", state(task)),
            _cancellation(task),
            ("queue", task.queue),
            ("tenant", task.tenant),
            ("priority", str(task.priority)),
            ("attempts", f"{task.attempt} of {task.max_attempts}"),
            ("created", stamp(task.created_at, now)),
            ("run at", stamp(task.run_at, now)),
            ("claimed", stamp(task.claimed_at, now)),
            ("ended", stamp(task.finished_at, now)),
            ("ran", "" if task.duration is None else span(task.duration)),
            ("expires", stamp(task.expires_at, now)),
            ("timeout", duration_text(task.timeout)),
            ("stuck", (_stuck(*stuck) if stuck else "", "bold red")),
            ("worker", task.worker or ""),
            ("progress", progress),
            ("root", "" if task.root == task.id else task.root),
            ("after", "\n".join(task.after)),
            ("next", "\n".join(_steps(readable_steps(task.next)))),
            ("key", task.idempotency_key or ""),
            ("enqueued by", task.enqueued_by),
            ("trace", task.trace or ""),
            ("payload", json_text(shown_json(task.payload))),
            ("result", result),
            ("failure", task.failure or ""),
            ("error", (f"{task.error.type}: {task.error.message}" if task.error else "", "red")),
        ]
    )
    if task.error is not None and task.error.traceback:
        output.heading("traceback")
        output.fields([("", task.error.traceback.rstrip())])


def _stuck(worker: WorkerDocument, handler: StuckDocument) -> str:
    place = f" at {handler.place}" if handler.place else ""
    slot = (
        "its slot is used again, and what it does now changes nothing about this task"
        if handler.replaced
        else "it keeps its slot until it ends"
    )
    overrun = span(handler.overrun)
    return (
        f"attempt {handler.attempt} still runs {overrun} after its timeout, on {worker.name}{place}; {slot}"
    )


def _cancellation(task: Task) -> tuple[str, str | Styled]:
    """Who cancelled a task, or asked it to stop, and why."""
    who = task.cancelled_by or ""
    by = f"{who}: {task.cancel_reason}" if task.cancel_reason else who
    if task.state is State.RUNNING and task.cancel_requested:
        return "cancelling", (f"asked to stop by {by}" if by else "asked to stop", "yellow")
    return ("cancelled by" if task.state is State.CANCELLED else "asked to stop by"), by


def _notes(attempt: Attempt) -> str:
    notes = attempt.as_dict()["notes"] or {}
    return " ".join(f"{name}={json_text(value)}" for name, value in notes.items())


def _number(failure: Failure) -> str:
    return f"{'' if failure.exact else '~'}{failure.number:,}"


def _attempt(task: Task) -> str:
    return f"{task.attempt}/{task.max_attempts}"


def _moment(task: Task) -> datetime:
    """The instant to show for a task in this state: due, claimed, created or ended."""
    match task.state:
        case State.SCHEDULED:
            return task.run_at
        case State.RUNNING:
            return task.claimed_at or task.created_at
        case State.WAITING | State.READY:
            return task.created_at
        case State.COMPLETED | State.CANCELLED | State.DEAD:
            return task.finished_at or task.created_at


def _brief(error: Error | None) -> str:
    """An error for a narrow cell: its type without the module."""
    return "" if error is None else f"{error.type.rpartition('.')[2]}: {error.message}"


def _steps(steps: Sequence[Step], level: int = 0) -> list[str]:
    shown: list[str] = []
    for step in steps:
        shown += [f"{'  ' * level}{step.id} {step.type}", *_steps(step.next, level + 1)]
    return shown
