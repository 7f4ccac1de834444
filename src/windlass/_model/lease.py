"""Claims, leases and heartbeats: sessions hold leases, fences number them."""

from datetime import timedelta

from msgspec import Struct

from .brief import Brief
from .queue import Level
from .record import Worker
from .task import Progress, Task, TaskId
from .transition import TaskTransition

DEFAULT_LEASE = timedelta(seconds=30)  # without a heartbeat, before a worker's tasks go to other workers
DEFAULT_HEARTBEAT = timedelta(seconds=5)  # between two heartbeats of a worker
CLOSE_TIMEOUT = 2.0
"""Seconds to end a session or a lead at shutdown; if the store is out of reach they expire by themselves."""

RESCUED = 0  # the claim number of a task that was rescued, not claimed; the numbers of claims start at 1
NO_CLAIMS = -1  # `Heartbeat.through` of a session that wants nothing handed back, not even rescued tasks


class Lease(Struct, frozen=True, gc=False):
    """The right to run and settle one task. Only the newest fence of a task is valid."""

    task_id: TaskId
    fence: int


class Claim(Struct, frozen=True, gc=False, kw_only=True):
    """A request for ready tasks.

    `number` rises with every claim of a session. Heartbeats name the highest number whose response has
    arrived or been abandoned, so the store knows which grants the worker cannot be waiting for.
    With a `level`, only tasks of that level of priority are claimed; with `types`, only tasks of these types.
    """

    session: str
    queues: tuple[str, ...]
    limit: int
    number: int
    level: Level | None = None
    types: tuple[str, ...] | None = None

    @property
    def is_selective(self) -> bool:
        """Whether it leaves ready tasks in its queues that another claim would get."""
        return self.level is not None or self.types is not None

    def takes(self, type_name: str) -> bool:
        """Whether it is for tasks of this type."""
        return self.types is None or type_name in self.types


class Claimed(Struct, frozen=True, gc=False):
    """A task under a new lease, its attempt already counted."""

    task: Task

    @property
    def lease(self) -> Lease:
        """The lease to settle it with."""
        return Lease(self.task.id, self.task.fence)


class ProgressReport(Struct, frozen=True, gc=False):
    """The progress of a running task, fenced by its lease."""

    lease: Lease
    progress: Progress


class Heartbeat(Struct, frozen=True, gc=False, kw_only=True):
    """Extend a worker's session, and with it every lease it holds, by `lease_for`.

    `opening` creates the session if there is none. `held` lists every lease the worker knows of; a lease
    that was granted in a claim up to number `through` and is not in it was lost on the way, and its task is
    released.
    """

    session: str
    worker: Worker
    lease_for: timedelta
    opening: bool = False
    held: tuple[Lease, ...] = ()
    through: int = 0
    progress: tuple[ProgressReport, ...] = ()


class CancelRequest(Brief, Struct, frozen=True, gc=False):
    """A running task that was asked to stop: by whom, and why."""

    task_id: TaskId
    by: str | None = None
    reason: str | None = None


class HeartbeatReply(Struct, frozen=True, gc=False, kw_only=True):
    """The store's reply to a heartbeat.

    Not `alive`: the session has ended and other workers may run its tasks, so stop them all. `lost` are
    leases that are no longer valid; `cancel` are held tasks that were asked to stop. `transitions` are the
    transitions of tasks that were granted to the session but never arrived, and of their successors.
    `workers` is how many sessions there are; of more than a hundred, some seconds ago.
    """

    alive: bool
    lost: tuple[Lease, ...] = ()
    cancel: tuple[CancelRequest, ...] = ()
    transitions: tuple[TaskTransition, ...] = ()
    workers: int = 1
