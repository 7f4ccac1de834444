"""LoopWatch: a thread that warns when a handler blocks the worker's event loop, and names it."""

import asyncio
import logging
import selectors
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from .run import Run

logger = logging.getLogger("windlass.worker")

BLOCKED_AFTER = 1.0  # seconds: a block that lasts as long is always named, one of three quarters may be
_ASKED = 4  # times in that; each wakes the loop
LOG_AGAIN_AFTER = 60.0  # seconds until the same line is named again
_IDLE = (str(Path(asyncio.__file__).parent), selectors.__file__)  # where a loop waits for something to do
_NOT_THE_PROGRAM = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"))


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]" = WeakKeyDictionary()


@contextmanager
def watched_loop(running: Callable[[], Iterable[Run]]) -> Iterator[None]:
    """Watch the running event loop during the block, with one thread for all workers that run on it."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = LoopWatch(loop)
        watch.start()
    watch.sources.append(running)
    try:
        yield
    finally:
        watch.sources.remove(running)
        if not watch.sources:
            del _watches[loop]
            watch.stop()


class LoopWatch:
    """Asks an event loop for a sign of life again and again. Create it on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sources: list[Callable[[], Iterable[Run]]] = []  # of runs, one for each worker
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
                continue
            self._look(ticked, asked)
            while not ticked.wait(BLOCKED_AFTER) and not self._stopping.is_set():
                pass  # once for each time that it is blocked

    def _look(self, ticked: threading.Event, asked: float) -> None:
        """Look where the loop is, if it still has not ticked. Frames are not kept: they hold their locals."""
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - there is no other way
        if frame is not None and not ticked.is_set():
            self._log(frame, monotonic() - asked)

    def _log(self, frame: FrameType, seconds: float) -> None:
        run = self._current_run()
        if run is None and frame.f_code.co_filename.startswith(_IDLE):
            return  # it waits for events, and this process was held up as a whole
        place = _place(_frame_of(run, frame))
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

    def _current_run(self) -> Run | None:
        """Return the run whose handler executes on the loop right now."""
        current = asyncio.current_task(self._loop)
        runs = (run for source in [*self.sources] for run in [*source()])
        return next((run for run in runs if run.slot is current), None)


def _frame_of(run: Run | None, innermost: FrameType) -> FrameType:
    """Return the frame of the handler itself, or else the innermost of the program's own."""
    code = None if run is None else _code(run.spec.handler)
    frames = [innermost]
    while (outer := frames[-1].f_back) is not None:
        frames.append(outer)
    for frame in frames:
        if frame.f_code is code:
            return frame
    own = (one for one in frames if not one.f_code.co_filename.startswith(_NOT_THE_PROGRAM))
    return next(own, innermost)


def _code(handler: Any) -> Any:
    return getattr(handler, "__code__", None)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
