"""Schedules and their ticks."""

from typing import Any

from msgspec import Struct

from .._client.schedules import ScheduleStatus
from .._model.schedule import Missed, Overlap
from .._policy.task_secrets import masked_schedule
from .fields import Id, Instant, build_document, shown_json


class ScheduleDocument(Struct, kw_only=True):
    """A schedule and its state. `next_at` is null while it is paused; `declared`: by a program, in code."""

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
    task_id: Id | None
    error: str | None


class ScheduleList(Struct, kw_only=True):
    """Every schedule, by name."""

    items: list[ScheduleDocument]


class Ticks(Struct, kw_only=True):
    """The next ticks of a schedule, ignoring whether it is paused."""

    items: list[Instant]


def schedule_document(status: ScheduleStatus, *, reveal: bool = False) -> ScheduleDocument:
    """Build a schedule's document; secrets in its payload are masked unless `reveal`."""
    schedule = status.schedule if reveal else masked_schedule(status.schedule)
    return build_document(ScheduleDocument, status, schedule, payload=shown_json(schedule.payload))
