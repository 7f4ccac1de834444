"""One run of one task in this worker, and how it may be stopped."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from time import perf_counter
from typing import Any

from .._handler.spec import HandlerSpec
from .._model.lease import Lease
from .._model.outcome import Crashed, Interrupted, Outcome, Stopped, TimedOut
from .._model.task import Error, Progress, Task

_NUDGE_AGAIN = 10.0  # seconds to clean up in, until a handler that goes on is cancelled once more

# Counted: it may be the task that silences its worker, and would do so again and again.
_SILENT = Error(
    type="WorkerSilent", message="stopped, as no heartbeat got through and others could soon take over"
)


class Stop(StrEnum):
    """Why a run is stopped from outside."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    SILENT = "silent"  # no heartbeat gets through: others may soon take over
    FENCED = "fenced"  # the lease is another's: whatever comes of it is dropped


class Phase(StrEnum):
    """How far a run has come with settling its task by itself, in a transaction of its own."""

    RUNNING = "running"
    SETTLING = "settling"  # on its way: the store will say whether the lease still held
    SETTLED = "settled"


class Run:
    """A task while its handler runs here."""

    __slots__ = (
        "_watch", "deadline", "declared", "enforce", "phase", "report", "slot", "started", "stop", "task",
    )  # fmt: skip

    def __init__(
        self,
        task: Task,
        declared: HandlerSpec,
        report: Callable[["Run", Progress], None],
        watch: Callable[["Run"], None],
    ) -> None:
        self.task = task
        self.declared = declared
        self.report = report
        self._watch = watch
        self.started = perf_counter()
        self.deadline = float("inf")
        self.stop: Stop | None = None
        self.phase = Phase.RUNNING
        self.enforce: Callable[[], Any] | None = None  # None: can only be asked, not made, to stop
        self.slot: asyncio.Task[None] | None = None  # the one that awaits it

    @property
    def lease(self) -> Lease:
        """The lease it runs under."""
        return Lease(self.task.id, self.task.fence)

    def begin(self) -> None:
        """The handler begins: its time runs from here, not from when it had to wait for a child process."""
        self.started = perf_counter()
        if self.task.timeout is not None:
            self.deadline = self.started + self.task.timeout.total_seconds()
            self._watch(self)

    def ask_to_stop(self, why: Stop) -> None:
        """Ask, and make it where that is possible. Being fenced overrides every other reason.

        Heartbeats repeat their reasons. Asking again must not interrupt a handler that cleans up, so it
        does nothing; only the loss of the lease and the end of the worker, which come once, are urgent.
        A lease that the run itself is ending, or has ended, is neither lost nor to be cancelled.
        """
        if self.phase is not Phase.RUNNING and why in (Stop.FENCED, Stop.CANCEL):
            return
        if self.stop is None:
            self.stop = why
        elif why not in (Stop.FENCED, Stop.SHUTDOWN) or self.stop in (Stop.FENCED, why):
            return
        elif why is Stop.FENCED:
            self.stop = why
        self.nudge()

    def nudge(self) -> None:
        """Make it stop where that is possible, and again if it still goes on after a while."""
        self.deadline = float("inf")
        if self.enforce is not None:
            self.deadline = perf_counter() + _NUDGE_AGAIN
            self._watch(self)
            self.enforce()

    def stopped(self) -> Outcome:
        """What a run that gave in to being stopped has come to."""
        match self.stop:
            case Stop.TIMEOUT if self.task.timeout is not None:
                return TimedOut(self.task.timeout)
            case Stop.CANCEL:
                return Stopped()
            case Stop.SILENT:
                return Crashed(error=_SILENT)
            case _:
                return Interrupted()
