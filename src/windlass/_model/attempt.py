"""The record of one attempt at a task."""

from datetime import datetime

from msgspec import Struct

from .brief import Brief
from .task import Documented, Error, Task, TaskId
from .verdict import Complete, Postpone, Settlement

MAX_RECORDED = 100
"""Attempts kept for each task, the newest: a task that snoozes for ever must not fill the disk."""

_UNSTARTED = ("unhandled", "locked")  # outcomes of tasks that a worker could not run


def is_recorded(settlement: Settlement) -> bool:
    """Whether a settlement is recorded as an attempt. Postponing for want of a handler or a key is not."""
    return settlement.outcome not in _UNSTARTED or not isinstance(settlement.verdict, Postpone)


class Attempt(Brief, Struct, Documented, frozen=True, gc=False, kw_only=True):
    """One lease from claim to settlement. A snooze or release is recorded, but does not raise `number`."""

    task_id: TaskId
    number: int
    fence: int
    worker: str | None
    claimed_at: datetime
    finished_at: datetime
    duration: float  # seconds that the handler ran, measured by the worker
    outcome: str
    error: Error | None = None
    trace: str | None = None
    notes: bytes | None = None  # facts that the handler noted, a JSON object without secrets


def attempt_of(task: Task, settlement: Settlement, now: datetime) -> Attempt:
    """Return the record of a running task's attempt that is settled now."""
    return Attempt(
        task_id=task.id,
        number=task.attempt,
        fence=task.fence,
        worker=task.worker,
        claimed_at=task.claimed_at or now,
        finished_at=now,
        duration=settlement.duration,
        outcome=settlement.outcome,
        error=None if isinstance(settlement.verdict, Complete) else settlement.verdict.error,
        trace=task.trace,
        notes=settlement.notes,
    )
