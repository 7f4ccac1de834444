"""The durable line of one try."""

from datetime import datetime

from msgspec import Struct

from .task import Error, TaskId


class Attempt(Struct, frozen=True, gc=False, kw_only=True):
    """One lease's story, from claim to settlement. A snooze or release has a line, but no new `number`."""

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
