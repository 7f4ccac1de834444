"""LoopWatch: a thread that warns when a handler blocks the event loop, and looks for stuck handlers."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from weakref import WeakKeyDictionary

from ..run import Run
from .stack import is_idle, place_of, thread_frames
from .stuck import StuckWatch

logger = logging.getLogger("windlass.worker")

BLOCKED_AFTER = 1.0  # seconds: a block that lasts as long is always named, one of three quarters may be
_ASKED = 4  # times in that; each wakes the loop
LOG_AGAIN_AFTER = 60.0  # seconds until the same line is named again


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]" = WeakKeyDictionary()


@contextmanager
def watched_loop(source: StuckWatch) -> Iterator[None]:
    """Watch the running event loop during the block, with one thread for all workers that run on it."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = LoopWatch(loop)
        watch.start()
    watch.sources.append(source)
    try:
        yield
    finally:
        watch.sources.remove(source)
        if not watch.sources:
            del _watches[loop]
            watch.stop()


class LoopWatch:
    """Asks an event loop for a sign of life again and again. Create it on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sources: list[StuckWatch] = []  # one for each worker
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._stopping = threading.Event()
        self._logged: dict[str, float] = {}  # places, and when each was logged

    def start(self) -> None:
        threading.Thread(target=self._watch, name="windlass-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def _watch(self) -> None:
        interval = BLOCKED_AFTER / _ASKED
        while not self._stopping.wait(interval):
            ticked, asked = threading.Event(), monotonic()
            try:
                self._loop.call_soon_threadsafe(ticked.set)
            except RuntimeError:  # the loop has closed
                return
            if ticked.wait(BLOCKED_AFTER - interval):  # the block may have begun right after the last tick
                self._look_for_stuck(None)
                continue
            self._look(ticked, asked)
            while not ticked.wait(interval) and not self._stopping.is_set():
                self._look_for_stuck(ticked)  # it is named once for each time that it is blocked

    def _look(self, ticked: threading.Event, asked: float) -> None:
        """Look where the loop is, if it still has not ticked. Frames are not kept: they hold their locals."""
        frames = thread_frames(self._thread_id)
        if frames and not ticked.is_set():
            self._log(frames, monotonic() - asked)

    def _log(self, frames: list[FrameType], seconds: float) -> None:
        run = self._current_run()
        if run is None and is_idle(frames[0]):
            return  # it waits for events, and this process was held up as a whole
        place = place_of(run, frames)
        now = monotonic()
        if now < self._logged.get(place, 0.0) + LOG_AGAIN_AFTER:
            return
        if len(self._logged) > 1_000:
            self._logged.clear()
        self._logged[place] = now
        if run is None:
            logger.warning("the event loop has been blocked for %.1f s at %s", seconds, place)
            return
        logger.warning(
            "the handler of %s has blocked the event loop for %.1f s at %s; all other handlers "
            "wait for it: await instead of blocking, or declare the handler without `async`",
            run.task.type,
            seconds,
            place,
            extra={"task_id": run.task.id, "task_type": run.task.type, "place": place},
        )

    def _look_for_stuck(self, blocked: threading.Event | None) -> None:
        """Look for stuck handlers; `blocked` is not set for as long as one of them blocks the loop."""
        current = None if blocked is None else self._current_run()
        frames = [] if current is None else thread_frames(self._thread_id)
        if blocked is not None and blocked.is_set():
            current = None  # it went on meanwhile
        for source in [*self.sources]:
            source.look(current, frames)

    def _current_run(self) -> Run | None:
        """Return the run whose handler executes on the loop right now."""
        current = asyncio.current_task(self._loop)
        runs = (run for source in [*self.sources] for run in source.runs())
        return next((run for run in runs if run.slot is current), None)
