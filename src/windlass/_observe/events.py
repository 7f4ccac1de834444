"""Events: one for each transition of a task, or for many tasks that made the same one; and their sinks."""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from .._model.brief import Brief
from .._model.state import State
from .._model.task import Error, NewTask, Task, TaskId
from .._model.transition import TaskTransition


class EventName(StrEnum):
    """The past tense of every verb that moves a task."""

    ENQUEUED = "enqueued"
    UNBLOCKED = "unblocked"
    PROMOTED = "promoted"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    RELEASED = "released"
    BURIED = "buried"
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # cancelled, because it had not started by its expiry
    RESCUED = "rescued"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    PRUNED = "pruned"
    LOST = "lost"  # a settlement was rejected because the lease no longer held
    STUCK = "stuck"  # no transition: its handler runs on after its timeout


class Event(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """A transition of one task, or of `number` tasks. Never carries payload or result. Times are seconds."""

    name: EventName
    task_id: TaskId = ""  # "": it is about several tasks
    type: str = ""
    queue: str = ""
    tenant: str = ""
    attempt: int = 0
    fence: int = 0
    worker: str | None = None
    trace: str | None = None
    waited: float | None = None  # from when it was due to its claim
    duration: float | None = None
    delay: float | None = None
    error: Error | None = None
    by: str | None = None  # who enqueued it, or who acted
    idempotency_key: str | None = None  # it was enqueued with
    joined: bool = False  # it is part of the caller's own transaction, which may yet be rolled back
    number: int | None = None  # of tasks, if it is about several
    state: State | None = None  # that they had, if they were pruned


class Sink(Protocol):
    """A receiver of events. It must be quick and must not raise; it is called from any thread."""

    def wants(self, name: EventName) -> bool:
        """Whether to make events of this name now; called once per batch."""

    def take(self, event: Event) -> None: ...


class TimingSink(Sink, Protocol):
    """A sink that also receives the times that the store takes. Called from any thread."""

    def took(self, verb: str, seconds: float) -> None:
        """Record how long a call took, whether it returned or raised."""

    def failed(self, verb: str, code: str) -> None:
        """Count a call that failed in the store. An error that the caller caused is not a failure."""

    def batch(self, size: int) -> None:
        """Record how many tasks were settled in one call."""


# -- events of tasks and transitions -----------------------------------------------------------------


def waited_seconds(task: Task) -> float | None:
    """Return the seconds from due to claimed; None if the task waited for others."""
    if task.claimed_at is None or (task.after and task.fence == 1):
        return None
    waited = (task.claimed_at - task.due_at).total_seconds()
    return waited if waited > 0 else 0.0  # quicker than max


def event_of(name: EventName, task: Task | NewTask, waited: float | None = None) -> Event:
    stored = task if isinstance(task, Task) else None
    return Event(
        name=name,
        task_id=task.id,
        type=task.type,
        queue=task.queue,
        tenant=task.tenant,
        attempt=stored.attempt if stored else 0,
        fence=stored.fence if stored else 0,
        worker=stored.worker if stored else None,
        trace=task.trace,
        waited=waited,
    )


def enqueued_event(new: NewTask, *, joined: bool) -> Event:
    return replace(
        event_of(EventName.ENQUEUED, new),
        by=new.enqueued_by or None,
        idempotency_key=new.idempotency_key,
        joined=joined,
    )


def transition_event(name: EventName, transition: TaskTransition, by: str | None, *, joined: bool) -> Event:
    return Event(
        name=name,
        task_id=transition.task_id,
        type=transition.type,
        queue=transition.queue,
        tenant=transition.tenant,
        attempt=transition.attempt,
        fence=transition.fence,
        worker=transition.worker,
        trace=transition.trace,
        error=transition.error,
        by=transition.by or by,
        joined=joined,
    )
