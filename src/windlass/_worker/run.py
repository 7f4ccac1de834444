"""Run: one run of one task in this worker, how it is stopped, and its result as JSON."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from time import perf_counter
from typing import Any

from .._handler.spec import HandlerSpec
from .._model.lease import Lease
from .._model.outcome import Crashed, Interrupted, Outcome, Stopped, TimedOut
from .._model.task import Error, Progress, Task
from .._policy.input.payload import encode
from ..errors import InvalidPayload
from ..signals import Fatal

_INTERRUPT_AGAIN_AFTER = 10.0  # seconds for a handler to clean up before it is interrupted once more

# Counts as a failed attempt: the task itself may be what keeps its worker from sending heartbeats.
_SILENT = Error(
    type="WorkerSilent",
    message="stopped because no heartbeat reached the store and other workers could soon take over",
)


class Stop(StrEnum):
    """Why a run is stopped from outside."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    SILENT = "silent"  # no heartbeat reaches the store: other workers may soon take over
    FENCED = "fenced"  # the lease is lost: the outcome is dropped


class Phase(StrEnum):
    """Whether a run settles its task by itself, in a transaction of its own."""

    RUNNING = "running"
    SETTLING = "settling"  # the store will say whether the lease still held
    SETTLED = "settled"


class Run:
    """A task while its handler runs here."""

    __slots__ = (
        "_watch_deadline", "deadline", "interrupt", "phase", "report",
        "slot", "spec", "started", "stop", "task",
    )  # fmt: skip

    def __init__(
        self,
        task: Task,
        spec: HandlerSpec,
        report: Callable[["Run", Progress], None],
        watch_deadline: Callable[["Run"], None],
    ) -> None:
        self.task = task
        self.spec = spec
        self.report = report
        self._watch_deadline = watch_deadline
        self.started = perf_counter()
        self.deadline = float("inf")
        self.stop: Stop | None = None
        self.phase = Phase.RUNNING
        self.interrupt: Callable[[], Any] | None = None  # None: a thread, which cannot be interrupted
        self.slot: asyncio.Task[None] | None = None  # the one that awaits it

    @property
    def lease(self) -> Lease:
        """The lease that it runs under."""
        return Lease(self.task.id, self.task.fence)

    def start(self) -> None:
        """Start the time limit: when the handler starts, not while it waits for a child process."""
        self.started = perf_counter()
        if self.task.timeout is not None:
            self.deadline = self.started + self.task.timeout.total_seconds()
            self._watch_deadline(self)

    def request_stop(self, why: Stop) -> None:
        """Ask the handler to stop, and interrupt it if possible. FENCED overrides every other reason.

        Heartbeats repeat their reasons, and a repeated request must not interrupt a handler that is cleaning
        up, so it is ignored. Only FENCED and SHUTDOWN, which come once, interrupt again. While the run
        settles its own task, and after that, FENCED and CANCEL are ignored.
        """
        if self.phase is not Phase.RUNNING and why in (Stop.FENCED, Stop.CANCEL):
            return
        if self.stop is None:
            self.stop = why
        elif why not in (Stop.FENCED, Stop.SHUTDOWN) or self.stop in (Stop.FENCED, why):
            return
        elif why is Stop.FENCED:
            self.stop = why
        self.interrupt_now()

    def interrupt_now(self) -> None:
        """Interrupt the handler if possible, and again after a while if it has not ended."""
        self.deadline = float("inf")
        if self.interrupt is not None:
            self.deadline = perf_counter() + _INTERRUPT_AGAIN_AFTER
            self._watch_deadline(self)
            self.interrupt()

    def stop_outcome(self) -> Outcome:
        """Return the outcome of a run that was stopped."""
        match self.stop:
            case Stop.TIMEOUT if self.task.timeout is not None:
                return TimedOut(self.task.timeout)
            case Stop.CANCEL:
                return Stopped()
            case Stop.SILENT:
                return Crashed(error=_SILENT)
            case _:
                return Interrupted()


def encode_result(value: Any) -> bytes | None:
    """Encode a handler's result as JSON; None stays None. Raises Fatal if it is not JSON."""
    if value is None:
        return None
    try:
        return encode(value, "result")
    except InvalidPayload as error:
        # The work is done, and a retry would not make its result JSON.
        raise Fatal(f"the handler ran, but {error}") from None
