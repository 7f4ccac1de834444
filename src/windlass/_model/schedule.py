"""Schedules: rules that enqueue tasks, and how far they have been fired."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict

from msgspec import Struct

from .brief import Brief
from .options import Unique
from .task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, TaskId


class Missed(StrEnum):
    """What happens to ticks that passed while no keeper could fire them."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What happens to a tick while the task of an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"


class ScheduleTiming(TypedDict, total=False):
    """The timing options of a schedule, as callers write them. Checked by _policy/schedule.py."""

    zone: str
    missed: Missed | str
    at_most: int
    overlap: Overlap | str
    jitter: timedelta | float | str


class ScheduleOptions(ScheduleTiming, total=False):
    """The timing options, and those of its tasks: for a schedule that an operator adds."""

    queue: str
    tenant: str
    priority: int | str
    max_attempts: int
    timeout: timedelta | float | str | None
    expires: timedelta | float | str | None
    secret: Sequence[str]


class Schedule(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """When to enqueue which task: by `cron` in time zone `zone`, or at every multiple of `every`.

    Not validated here: a record that one program cannot read must not keep it from reading the others.
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
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    expires: timedelta | None = None  # if its task has not started this long after it is due
    unique: Unique = False  # from the type: equal tasks are refused, whatever enqueued them
    unique_for: timedelta | None = None
    secret: tuple[str, ...] = ()
    next: bytes | None = None  # the steps that follow its tasks
    fingerprint: str | None = None  # of its tasks, if its payload is encrypted; else computed from it
    paused: bool = False
    declared: bool = False  # True: declared in code; False: added by an operator
    since: datetime | None = None  # ignore ticks up to then: it did not exist, or was paused


class Tick(Struct, frozen=True, gc=False, kw_only=True):
    """How far a schedule has been fired: every tick up to `at` was fired or skipped.

    Only the leading keeper writes it, so it never conflicts with an operator's change to the schedule.
    """

    name: str
    at: datetime
    fired_at: datetime | None = None  # the last tick that was fired
    task_id: TaskId | None = None  # and the task it became
