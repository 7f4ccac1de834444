"""A schedule: a rule that enqueues; and how far it has come."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict

from msgspec import Struct

from .task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, TaskId


class Missed(StrEnum):
    """What becomes of ticks that came while nobody was there to fire them."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while the task of an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"


class ScheduleTiming(TypedDict, total=False):
    """How a schedule keeps its rule, as callers write it. Checked by _policy/schedule.py."""

    zone: str
    missed: Missed | str
    at_most: int
    overlap: Overlap | str
    jitter: timedelta | float | str


class ScheduleOptions(ScheduleTiming, total=False):
    """The same, and how its tasks are enqueued: for a schedule that an operator adds."""

    queue: str
    tenant: str
    priority: int | str
    max_attempts: int
    timeout: timedelta | float | str | None


class Schedule(Struct, frozen=True, gc=False, kw_only=True):
    """When to enqueue which task. Either `cron`, in the time of `zone`, or `every` so long.

    Nothing is checked here: a record that one program cannot read must not keep it from reading the others.
    """

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
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    unique: bool = False  # the type's own: equal tasks are refused, whoever enqueued them
    secret: tuple[str, ...] = ()
    next: bytes | None = None  # the steps that follow its tasks
    paused: bool = False
    declared: bool = False  # in code; False: added by an operator
    since: datetime | None = None  # ticks up to then are none of its own: it was not there, or paused


class Tick(Struct, frozen=True, gc=False, kw_only=True):
    """How far a schedule has come: everything up to `at` was fired or passed over.

    Only the leading keeper writes it, so that what people do to a schedule and what it does never collide.
    """

    name: str
    at: datetime
    fired_at: datetime | None = None  # the last tick that was fired
    task_id: TaskId | None = None  # and the task it became
