"""The settings of a worker."""

import os
from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct

from .._model.lease import DEFAULT_HEARTBEAT, DEFAULT_LEASE
from .._model.queue import Level
from .._policy.input.options import checked_names
from .._policy.input.trace import RELATIONS
from .._policy.order.queue_options import LevelName
from .._policy.order.reserve import new_reserve
from ..errors import InvalidOption


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Settings of a worker. Raises InvalidOption if one is out of range.

    `queues`: to claim from [default: all that the app's task types use]. `all_queues`: claim from every queue
    in turn, new ones included, in place of `queues`. `slots`: tasks that run at once;
    `processes`: how many of them in child processes. `reserve`: slots kept for tasks of a level of priority
    ("high", "medium", "low"), which may use the others too. `heartbeat`: interval of heartbeats; after
    `lease` without one, other workers take over the tasks. `grace`: time for running tasks to finish at
    shutdown. `poll`: interval of claims without a wake. `drain`: stop once no task is ready. `keeper`: run a
    keeper, too. `name`: shown among the workers [default: HOST-PID]. `tracing`: how the span of an attempt
    relates to the task's trace ("auto", "parent", "link"; see docs/tracing.md).
    """

    queues: tuple[str, ...] = ()
    all_queues: bool = False
    slots: int = 32
    reserve: Mapping[Level | LevelName, int] = {}
    processes: int = os.cpu_count() or 1
    lease: timedelta = DEFAULT_LEASE
    heartbeat: timedelta = DEFAULT_HEARTBEAT
    grace: timedelta = timedelta(seconds=25)
    poll: timedelta = timedelta(seconds=2)
    drain: bool = False
    keeper: bool = True
    name: str = ""
    tracing: str = "auto"

    def __post_init__(self) -> None:
        checked_names(self.queues, "queues")
        if self.queues and self.all_queues:
            raise InvalidOption("queues and all_queues exclude each other; give one of them")
        for name in ("lease", "heartbeat", "grace", "poll"):
            if not isinstance(getattr(self, name), timedelta):
                raise InvalidOption(f"{name} must be a timedelta, not {getattr(self, name)!r}")
        for name, number, highest in (("slots", self.slots, 10_000), ("processes", self.processes, 1_000)):
            if not 1 <= number <= highest:
                raise InvalidOption(f"{name} must be 1 to {highest:,}, not {number}")
        if self.tracing not in RELATIONS:
            raise InvalidOption(f"tracing must be one of {', '.join(RELATIONS)}, not {self.tracing!r}")
        new_reserve(self.slots, self.reserve)
        if self.heartbeat * 3 > self.lease:
            raise InvalidOption(
                f"a heartbeat every {self.heartbeat.total_seconds():g} s is too slow for a lease of "
                f"{self.lease.total_seconds():g} s; send at least three within the lease"
            )
        if self.heartbeat <= timedelta(0) or self.poll <= timedelta(0) or self.grace < timedelta(0):
            raise InvalidOption("heartbeat and poll must be positive, and grace must not be negative")
