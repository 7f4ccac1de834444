"""The right to run and settle a task: sessions hold leases, fences number them."""

from datetime import timedelta

from msgspec import Struct

from .queue import Level
from .record import Worker
from .task import Progress, Task, TaskId

DEFAULT_LEASE = timedelta(seconds=30)
"""Time without a heartbeat before a worker's tasks go to others."""

DEFAULT_HEARTBEAT = timedelta(seconds=5)
"""Time between two heartbeats of a worker."""


CLOSE_TIMEOUT = 2.0
"""Seconds to end a session or a lead at shutdown; if the store is out of reach they expire by themselves."""


class Lease(Struct, frozen=True, gc=False):
    """The right to settle one task. Only its newest fence counts."""

    task_id: TaskId
    fence: int


RESCUED = 0
"""Stands for the number of the claim where a task was rescued and not claimed; real ones start at 1."""


NO_CLAIMS = -1
"""`Heartbeat.through` of a session that wants nothing handed back, not even rescued tasks."""


class Claim(Struct, frozen=True, gc=False, kw_only=True):
    """A request for ready tasks.

    `number` rises with every claim of a session. The heartbeat names the highest number whose answer has
    arrived or been given up, so that the store knows which grants the worker can no longer be waiting for.
    With a `level` only tasks of that level of priority are meant.
    """

    session: str
    queues: tuple[str, ...]
    limit: int
    number: int
    level: Level | None = None


class Claimed(Struct, frozen=True, gc=False):
    """A task under a fresh lease, its attempt already counted."""

    task: Task

    @property
    def lease(self) -> Lease:
        """The lease that settling it will need."""
        return Lease(self.task.id, self.task.fence)


class ProgressReport(Struct, frozen=True, gc=False):
    """Progress of a running task, fenced like every write about one."""

    lease: Lease
    progress: Progress


class Heartbeat(Struct, frozen=True, gc=False, kw_only=True):
    """A worker's sign of life: keeps its session, and with it every lease, for `lease_for` longer.

    `opening` makes the session if there is none. `held` lists every lease the worker knows of; what the
    store granted this session in claims up to `through` and is not in it was lost on the way, and is
    handed back.
    """

    session: str
    worker: Worker
    lease_for: timedelta
    opening: bool = False
    held: tuple[Lease, ...] = ()
    through: int = 0
    progress: tuple[ProgressReport, ...] = ()


class HeartbeatReply(Struct, frozen=True, gc=False, kw_only=True):
    """The answer to a heartbeat.

    Not `alive`: the session is gone, others may have its tasks, stop everything. `lost` are leases that
    no longer hold; `cancel` are held tasks that were asked to stop.
    """

    alive: bool
    lost: tuple[Lease, ...] = ()
    cancel: tuple[TaskId, ...] = ()
