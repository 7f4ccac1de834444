"""Outages of a store: growing pauses between calls that fail, a line in the log at the start and the end."""

import asyncio
import logging
import random
import threading
from contextlib import suppress
from time import monotonic

from .._timers import wait_for_event
from ..errors import StoreError, StoreUnavailable

logger = logging.getLogger("windlass.store")

FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0  # seconds, doubled from one to the other
REMIND_AFTER = 600.0  # seconds until an outage that lasts is logged again
REMIND_OF_REFUSAL_AFTER = 60.0  # the same if a retry cannot help, so that someone has to act


class ShardUnavailable(StoreUnavailable):
    """One of several shards is not available; what needs only the others can be done."""

    def __init__(self, message: str, shard: str = "") -> None:
        super().__init__(message)
        self.shard = shard


class Outage:
    """What the loops of a worker or keeper know together about the store they use. Thread-safe.

    An outage begins with the first call that fails, and has ended when every loop that failed has succeeded
    again. The first that does ends the pauses of the others.
    """

    def __init__(self, what: str = "the store") -> None:
        self._what = what
        self._lock = threading.Lock()
        self._failing: set[Pauses] = set()
        self._began = 0.0
        self._logged_at = 0.0
        self._is_refusal = False
        self._paused: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def is_open(self) -> bool:
        """Whether there is an outage now."""
        return bool(self._failing)

    def failed(self, loop: "Pauses", error: Exception) -> None:
        """Note a failed call; log it if it begins an outage, or if it is time for a reminder."""
        is_refusal = isinstance(error, StoreError) and not error.transient
        with self._lock:
            now = monotonic()
            if not self._failing:
                self._began = now
            elif now < self._logged_at + self._remind_after() and is_refusal <= self._is_refusal:
                self._failing.add(loop)
                return
            self._failing.add(loop)
            self._is_refusal, self._logged_at = is_refusal, now
            lasting = f" (for {now - self._began:.0f} s)" if now > self._began else ""
        level, what = (logging.ERROR, "failed") if is_refusal else (logging.WARNING, "is not available")
        logger.log(level, "%s %s%s, retrying: %s", self._what, what, lasting, error)

    def _remind_after(self) -> float:
        return REMIND_OF_REFUSAL_AFTER if self._is_refusal else REMIND_AFTER

    def succeeded(self, loop: "Pauses") -> None:
        """Note that a loop that had failed has succeeded; log it if that ends the outage."""
        with self._lock:
            for event_loop, ended in self._paused:
                with suppress(RuntimeError):  # the event loop has closed
                    event_loop.call_soon_threadsafe(ended.set)
            self._failing.discard(loop)
            if self._failing:
                return
            seconds = monotonic() - self._began
        text = f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
        logger.warning("%s is back after %s", self._what, text)

    def ended(self, loop: "Pauses") -> None:
        """Forget a loop that has ended: whether it would still fail is not known."""
        with self._lock:
            self._failing.discard(loop)

    async def pause(self, seconds: float) -> bool:
        """Wait this long; less, and True, if a loop that had failed succeeds meanwhile."""
        paused = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._paused.add(paused)
        try:
            return await wait_for_event(paused[1], seconds)
        finally:
            with self._lock:
                self._paused.discard(paused)


class Pauses:
    """The pauses of one loop after calls that failed: they grow, with jitter, until one succeeds."""

    def __init__(self, outage: Outage, first: float = FIRST_PAUSE, last: float = LAST_PAUSE) -> None:
        self._outage = outage
        self._first, self._last = first, last
        self._next = first
        self._is_failing = False

    def failed(self, error: Exception) -> float:
        """Note that the store failed; return the seconds to wait before the next call."""
        self._is_failing = True
        self._outage.failed(self, error)
        return self.grow()

    def grow(self) -> float:
        """Return the seconds to wait, more each time, without blaming the store."""
        pause, self._next = self._next, min(self._next * 2, self._last)
        return pause * (0.5 + random.random())

    async def wait(self, seconds: float) -> None:
        """Wait before the next call: as long as `failed` or `grow` said, or until another loop succeeds."""
        if await self._outage.pause(seconds):
            self._next = self._first

    def succeeded(self) -> None:
        """Note that a call succeeded: the next pause is the first again."""
        self._next = self._first
        self.reached()

    def reached(self) -> None:
        """Note that the store is available, whatever became of the call: pauses go on growing."""
        if self._is_failing:
            self._is_failing = False
            self._outage.succeeded(self)

    def end(self) -> None:
        """Note that the loop has ended, so that an outage does not last until it succeeds."""
        self._next, self._is_failing = self._first, False
        self._outage.ended(self)
