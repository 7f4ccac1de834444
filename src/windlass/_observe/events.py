"""Events: one for each step of a task, and the sinks that receive them."""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from .._model.task import Error, TaskId


class EventName(StrEnum):
    """The past tense of every verb that moves a task."""

    ENQUEUED = "enqueued"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    RELEASED = "released"
    BURIED = "buried"
    CANCELLED = "cancelled"
    RESCUED = "rescued"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    LOST = "lost"  # a settlement was rejected because the lease no longer held


class Event(Struct, frozen=True, gc=False, kw_only=True):
    """One step of one task. Never carries payload or result. Times are in seconds."""

    name: EventName
    task_id: TaskId
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
    by: str | None = None


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
