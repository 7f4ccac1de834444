"""A schedule: a rule that enqueues; and how far it has come."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from .task import DEFAULT_QUEUE, TaskId


class Missed(StrEnum):
    """What becomes of ticks that came while nobody was there to fire them."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while the task of an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"


class Schedule(Struct, frozen=True, gc=False, kw_only=True):
    """When to enqueue which task. Either `cron`, in the time of `zone`, or `every` so long."""

    name: str
    type: str
    payload: bytes = b"{}"
    cron: str | None = None
    zone: str = "UTC"
    every: timedelta | None = None
    missed: Missed = Missed.SKIP
    at_most: int = 100  # ticks caught up on, under Missed.ALL
    overlap: Overlap = Overlap.ALLOW
    jitter: timedelta = timedelta(0)
    queue: str = DEFAULT_QUEUE
    tenant: str = ""
    priority: int = 0
    boost: int = 0
    max_attempts: int = 8
    timeout: timedelta | None = None
    secret: tuple[str, ...] = ()
    paused: bool = False
    declared: bool = False  # in code; False: added by an operator


class Tick(Struct, frozen=True, gc=False, kw_only=True):
    """How far a schedule has come: everything up to `at` was fired or passed over."""

    name: str
    at: datetime
    fired_at: datetime | None = None  # the last tick that was fired
    task_id: TaskId | None = None  # and the task it became
