"""Schedules and their ticks."""

from typing import Any

from msgspec import Struct

from .._client.schedules import PastTick, ScheduleStatus
from .._model.brief import Brief
from .._model.schedule import Missed, Overlap
from .._model.state import State
from .._policy.secrets.shown import masked_schedule
from .fields import Id, Instant, build_document, shown_json


class ScheduleDocument(Brief, Struct, kw_only=True):
    """A schedule and its state. `next_at` is null while it is paused; `declared`: by a program, in code.

    `late`: seconds since the first tick that has not been fired was due; 0 if there is none.
    """

    name: str
    type: str
    payload: Any
    cron: str | None
    every: float | None
    zone: str
    missed: Missed
    at_most: int
    overlap: Overlap
    jitter: float
    queue: str
    tenant: str
    priority: int
    max_attempts: int
    timeout: float | None
    expires: float | None
    paused: bool
    declared: bool
    next_at: Instant | None
    last_at: Instant | None
    late: float
    task_id: Id | None
    error: str | None


class ScheduleList(Struct, kw_only=True):
    """Every schedule, by name."""

    items: list[ScheduleDocument]


class PastTickDocument(Struct, kw_only=True):
    """A tick that has passed, and the task that it became.

    `task_id` is null if the tick was skipped or missed, the schedule was paused, or the task was pruned.
    `late`: seconds from the tick until the task was enqueued.
    """

    at: Instant
    task_id: Id | None
    state: State | None
    late: float | None
    duration: float | None


class PastTicks(Struct, kw_only=True):
    """The last ticks of a schedule, newest first."""

    items: list[PastTickDocument]


class Ticks(Struct, kw_only=True):
    """The next ticks of a schedule, ignoring whether it is paused."""

    items: list[Instant]


def schedule_document(status: ScheduleStatus, *, reveal: bool = False) -> ScheduleDocument:
    """Build a schedule's document; secrets in its payload are masked unless `reveal`."""
    schedule = status.schedule if reveal else masked_schedule(status.schedule)
    return build_document(
        ScheduleDocument,
        status,
        schedule,
        payload=shown_json(schedule.payload),
    )


def past_tick_document(tick: PastTick) -> PastTickDocument:
    """Build the document of a tick that has passed."""
    task = tick.task
    if task is None:
        return PastTickDocument(at=tick.at, task_id=None, state=None, late=None, duration=None)
    late = max((task.created_at - tick.at).total_seconds(), 0.0)
    return PastTickDocument(at=tick.at, task_id=task.id, state=task.state, late=late, duration=task.duration)
