"""How a worker works: one frozen value, checked once."""

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
    """A worker's settings.

    `slots` is how many tasks run at once; `processes` how many of them may be in child processes.
    Without a sign of life for `lease` its tasks are rescued. At shutdown running tasks get `grace` to
    finish. `poll` is the slow safety net beneath the wake-ups. `drain` ends the worker when nothing is
    ready. No queues means all that the app's task types use. `reserve` keeps so many of the slots for tasks
    of a level of priority ("high", "medium", "low"), which may use the others as well. `tracing` is how the
    spans of attempts belong to the tasks' traces ("auto", "parent", "link"; docs/tracing.md).
    """

    queues: tuple[str, ...] = ()
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
        for name in ("lease", "heartbeat", "grace", "poll"):
            if not isinstance(getattr(self, name), timedelta):
                raise InvalidOption(f"a worker's {name} is a timedelta, not {getattr(self, name)!r}")
        for name, number, highest in (("slots", self.slots, 10_000), ("processes", self.processes, 1_000)):
            if not 1 <= number <= highest:
                raise InvalidOption(f"a worker has 1 to {highest:,} {name}, not {number}")
        if self.tracing not in RELATIONS:
            raise InvalidOption(f"tracing is one of {', '.join(RELATIONS)}, not {self.tracing!r}")
        new_reserve(self.slots, self.reserve)
        if self.heartbeat * 3 > self.lease:
            raise InvalidOption(
                f"the heartbeat of {self.heartbeat.total_seconds():g} s is too slow for a lease of "
                f"{self.lease.total_seconds():g} s; it must come at least three times within it"
            )
        if self.heartbeat <= timedelta(0) or self.poll <= timedelta(0) or self.grace < timedelta(0):
            raise InvalidOption("heartbeat and poll are longer than nothing, and grace is not negative")
