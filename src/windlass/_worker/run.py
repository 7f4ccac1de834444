"""Run: one run of one task in this worker, and how it is stopped."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from time import perf_counter
from typing import Any

from msgspec import Struct, field

from .._handler.spec import HandlerSpec
from .._model.brief import Brief
from .._model.lease import CancelRequest, Lease
from .._model.outcome import Crashed, Interrupted, Outcome, Stopped, TimedOut
from .._model.task import Error, Progress, Task
from .._policy.input.notes import encode_notes, merged_notes
from .._policy.secrets.mask import Mask, mask_of
from .._policy.secrets.shown import masked_progress

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


class Run(Brief, Struct, eq=False):
    """A task while its handler runs here. `watch` is called with each new `deadline`."""

    task: Task
    spec: HandlerSpec
    slot: asyncio.Task[None]  # the one that awaits it
    report: Callable[["Run", Progress], None]
    watch: Callable[[float], None]
    started: float = field(default_factory=perf_counter)
    times_out_at: float = float("inf")  # once it has started, if it has a timeout
    deadline: float = float("inf")
    stop: Stop | None = None
    phase: Phase = Phase.RUNNING
    progress: Progress | None = None  # the last that its handler reported
    cancel: CancelRequest | None = None  # who asked it to stop
    notes: dict[str, Any] = {}  # facts that its handler and arounds noted
    secrets: tuple[str, ...] = ()  # in the results that it takes, to be masked with those of its payload
    known_mask: Mask | None = None
    interrupt: Callable[[], Any] | None = None  # None: a thread, which cannot be interrupted
    asked_at: float = float("inf")  # when it was first asked to stop
    coroutine: Coroutine[Any, Any, Any] | None = None  # what its slot awaits, if not a thread or a child
    thread: int | None = None  # the thread that runs its handler right now
    is_reported: bool = False  # as stuck
    is_replaced: bool = False  # its slot no longer waits for its thread, whose outcome is dropped

    @property
    def lease(self) -> Lease:
        return Lease(self.task.id, self.task.fence)

    @property
    def is_stopping(self) -> bool:
        return self.stop is not None

    @property
    def is_lost(self) -> bool:
        """Whether its lease was lost before it settled its task: its outcome is dropped."""
        return self.stop is Stop.FENCED and self.phase is not Phase.SETTLED

    @property
    def mask(self) -> Mask:
        """What to mask in the texts of this run, which is determined when it is first needed."""
        if self.known_mask is None:
            self.known_mask = mask_of(self.task.payload, self.task.secret, self.secrets)
        return self.known_mask

    def report_progress(self, progress: Progress) -> None:
        """Send progress, without secrets, with the next heartbeat; the last is also settled with the task."""
        if self.is_replaced:
            return
        if progress.message:
            progress = masked_progress(progress, self.mask)
        self.progress = progress
        self.report(self, progress)

    def keep_notes(self, facts: Mapping[str, object]) -> None:
        """Keep facts for the record of this attempt, besides those kept so far. Raises InvalidPayload.

        They come from the context in this process and from that in a child, which do not know of each other.
        Raises InvalidOption if they are too long together.
        """
        self.notes = merged_notes(self.notes, facts)

    def encoded_notes(self) -> bytes | None:
        """Return the notes as JSON without the task's secrets; None if there are none."""
        return encode_notes(self.notes, self.mask) if self.notes else None

    def start(self) -> None:
        """Start the time limit: when the handler starts, not while it waits for a child process."""
        self.started = perf_counter()
        if self.task.timeout is not None:
            self.deadline = self.times_out_at = self.started + self.task.timeout.total_seconds()
            self.watch(self.deadline)

    def request_stop(self, why: Stop) -> None:
        """Ask the handler to stop, and interrupt it if possible. FENCED overrides every other reason.

        Heartbeats repeat their reasons, and a repeated request must not interrupt a handler that is cleaning
        up, so it is ignored. Only FENCED and SHUTDOWN, which come once, interrupt again. While the run
        settles its own task, and after that, FENCED and CANCEL are ignored.
        """
        if self.phase is not Phase.RUNNING and why in (Stop.FENCED, Stop.CANCEL):
            return
        if self.stop is None:
            self.stop, self.asked_at = why, perf_counter()
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
            self.watch(self.deadline)
            self.interrupt()

    def replace(self) -> None:
        """End the run without waiting for its thread, which goes on; the outcome is that of its stop."""
        self.is_replaced = True
        self.deadline = float("inf")
        self.slot.cancel()

    def stop_outcome(self) -> Outcome:
        match self.stop:
            case Stop.TIMEOUT if self.task.timeout is not None:
                return TimedOut(self.task.timeout)
            case Stop.CANCEL:
                return Stopped()
            case Stop.SILENT:
                return Crashed(error=_SILENT)
            case _:
                return Interrupted()
