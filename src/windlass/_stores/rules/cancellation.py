"""Why a task is cancelled, as its error says it, and as the errors of the tasks that waited for it do."""

from typing import Any

from msgspec import Struct

from ..._model.filter import By
from ..._model.task import CANCELLED, EXPIRED, Error, Task, TaskId


class Cancellation(Struct, frozen=True, kw_only=True):
    """What cancels a task: the message of its error, and what its successors are told of it."""

    message: str
    fate: str  # completes "task … "
    by: By | None = None  # None: nobody decided it
    type: str = CANCELLED
    cause: str = ""  # what happened to the task that the cancellation began with

    @property
    def error(self) -> Error:
        """The error of the cancelled task."""
        return Error(type=self.type, message=self.message)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a pending task that this cancels."""
        return {"error": self.error, "failure": None, **asked_by(self.by)}

    def of_successor(self, predecessor: TaskId) -> "Cancellation":
        """Return the cancellation of a task that waited for this one."""
        cause = self.cause or f"task {predecessor} {self.fate}"
        return Cancellation(
            message=f"task {predecessor}, which it waited for, {self.fate}",
            fate=f"was cancelled, because {cause}",
            by=self.by,
            cause=cause,
        )


def asked_by(by: By | None) -> dict[str, str | None]:
    """Return the fields of a task that say who cancelled it and why."""
    return {"cancelled_by": by.who if by else None, "cancel_reason": (by.why or None) if by else None}


def by_operator(by: By) -> Cancellation:
    """An operator or a program cancelled it."""
    words = f"cancelled by {by.who}" + (f": {by.why}" if by.why else "")
    return Cancellation(message=words, fate=f"was {words}", by=by)


def while_running(task: Task) -> Cancellation:
    """It was asked to stop while it ran, or its handler stopped it."""
    if task.cancelled_by is None:
        return Cancellation(message="asked to stop", fate="was cancelled")
    return by_operator(By(who=task.cancelled_by, why=task.cancel_reason or ""))


def expired(task: Task) -> Cancellation:
    """It had not started by its expiry."""
    at = task.expires_at.isoformat() if task.expires_at else "its expiry"
    return Cancellation(message=f"had not started by {at}", fate=f"expired at {at}", type=EXPIRED)


def discarded(by: By) -> Cancellation:
    """An operator discarded the dead task."""
    return Cancellation(message="", fate="died and was discarded", by=by)


def pruned() -> Cancellation:
    """The dead task was deleted by retention."""
    return Cancellation(message="", fate="died and was pruned")


def too_late(predecessor: TaskId) -> Cancellation:
    """It was enqueued after a task that had been cancelled already."""
    return Cancellation(message="", fate="had been cancelled").of_successor(predecessor)


def duplicate(standing: TaskId) -> Cancellation:
    """When its turn came, another unique task was equal to it."""
    return Cancellation(
        message=f"when its turn came, it was equal to the unique task {standing}",
        fate=f"was a duplicate of task {standing}",
        type="Duplicate",
    )
