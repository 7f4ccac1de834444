"""The durable line of one try."""

from datetime import datetime

from msgspec import Struct

from .task import Error, TaskId
from .verdict import Postpone, Settlement

MAX_RECORDED = 100
"""Lines kept of one task, the newest: one that snoozes for ever must not fill the disk."""


def is_recorded(settlement: Settlement) -> bool:
    """Whether it is worth a line. A worker that had no handler and put the task off has done nothing."""
    return settlement.outcome != "unhandled" or not isinstance(settlement.verdict, Postpone)


class Attempt(Struct, frozen=True, gc=False, kw_only=True):
    """One lease's story, from claim to settlement. A snooze or release has a line, but no new `number`.

    Being put off for want of a handler has none, and only the newest `MAX_RECORDED` of a task are kept.
    """

    task_id: TaskId
    number: int
    fence: int
    worker: str | None
    claimed_at: datetime
    finished_at: datetime
    duration: float  # seconds that the handler ran, by the worker's own stopwatch
    outcome: str
    error: Error | None = None
    trace: str | None = None
