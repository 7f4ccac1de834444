"""The events: facts that a step happened, by the names that logs, metrics and docs use. (O1)"""

from enum import StrEnum

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
    LOST = "lost"  # a settlement was refused: the lease had become another's


class Event(Struct, frozen=True, gc=False, kw_only=True):
    """One step of one task. It never carries payload or result."""

    name: EventName
    task_id: TaskId
    type: str = ""
    queue: str = ""
    tenant: str = ""
    attempt: int = 0
    fence: int = 0
    worker: str | None = None
    trace: str | None = None
    waited: float | None = None  # seconds from when it was due to its claim
    duration: float | None = None
    delay: float | None = None
    error: Error | None = None
    by: str | None = None
