"""LoopWatch: a thread that warns when a handler blocks the event loop, and looks for stuck handlers."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from weakref import WeakKeyDictionary

from ..._policy.input.quote import counted
from ..run import Run
from .stack import is_idle, place_of, thread_frames
from .stuck import StuckWatch

logger = logging.getLogger("windlass.worker")

BLOCKED_AFTER = 1.0  # seconds: a block that lasts as long is always named, one of three quarters may be
_BEATS = 4  # times in that; each wakes the loop
LOG_AGAIN_AFTER = 60.0  # seconds until the same line is named again
_MAX_NAMED = 3  # tasks, of a block that was found when it was over


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
    """Looks in a thread whether an event loop still beats. Create, start and stop it on the loop's thread.

    While a handler holds the GIL, in C code, the thread cannot look either. So the loop measures itself how
    late its beats are, and reports the blocks that nobody saw once they are over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sources: list[StuckWatch] = []  # one for each worker
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._stopping = threading.Event()
        self._alive_at = perf_counter()  # the last beat
        self._named: float | None = None  # the last beat before the block that was named last
        self._logged: dict[str, float] = {}  # places, and when each was logged

    def start(self) -> None:
        self._beat()
        threading.Thread(target=self._watch, name="windlass-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self._timer.cancel()

    # -- on the loop -------------------------------------------------------------------------------------

    def _beat(self) -> None:
        now = perf_counter()
        if now - self._alive_at >= BLOCKED_AFTER and self._named != self._alive_at:
            self._log_unseen(self._alive_at, now)
        self._alive_at = now
        self._timer = self._loop.call_later(BLOCKED_AFTER / _BEATS, self._beat)

    def _log_unseen(self, since: float, now: float) -> None:
        """Report a block that is over and that the thread could not see, with the tasks that ran then."""
        tasks = {one.id: one for source in self.sources for one in source.ran_between(since, now)}
        if not tasks:
            return  # the machine was overloaded, or this process was held up as a whole
        names = [f"{one.type} (task {one.id})" for one in [*tasks.values()][:_MAX_NAMED]]
        if len(tasks) > _MAX_NAMED:
            names.append(f"{counted(len(tasks) - _MAX_NAMED, 'other task')}")
        ran = ", ".join(names)
        if not self._may_log(ran, now):
            return
        (first, *others) = tasks.values()
        logger.warning(
            "the event loop did not run for %.1f s, and where is not known, as no other thread ran either: "
            "a handler held Python's lock (the GIL) in C code, or the machine was overloaded; running then: "
            "%s",
            now - since,
            ran,
            extra=None if others else {"task_id": first.id, "task_type": first.type},
        )

    # -- in the thread -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.wait(self._pause()):
            if self._loop.is_closed():
                return
            alive_at = self._alive_at
            is_blocked = perf_counter() - alive_at >= BLOCKED_AFTER
            if is_blocked and self._named != alive_at:  # it is named once for each time that it is blocked
                self._look(alive_at)
            self._look_for_stuck(alive_at if is_blocked else None)

    def _pause(self) -> float:
        """Return the seconds until the next look, which is not later than the moment to name a block."""
        interval, left = BLOCKED_AFTER / _BEATS, self._alive_at + BLOCKED_AFTER - perf_counter()
        return min(interval, left) if left > 0 else interval

    def _look(self, alive_at: float) -> None:
        """Look where the loop is, if it has not beaten since. Frames are not kept: they hold their locals."""
        frames = thread_frames(self._thread_id)
        run = self._current_run()
        if not frames or self._alive_at != alive_at:
            return
        if run is None and is_idle(frames[0]):
            return  # it waits for events or for the GIL; its next beat reports how late it is
        self._named = alive_at
        self._log(run, place_of(run, frames), alive_at)

    def _log(self, run: Run | None, place: str, alive_at: float) -> None:
        now = perf_counter()
        if not self._may_log(place, now):
            return
        seconds = now - alive_at
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

    def _may_log(self, place: str, now: float) -> bool:
        """Whether this place, or these tasks, were not logged within the last minute; note that they are."""
        if now < self._logged.get(place, float("-inf")) + LOG_AGAIN_AFTER:
            return False
        if len(self._logged) > 1_000:
            self._logged.clear()
        self._logged[place] = now
        return True

    def _look_for_stuck(self, blocked_at: float | None) -> None:
        """Look for stuck handlers; `blocked_at` is the last beat if one of them blocks the loop."""
        current = None if blocked_at is None else self._current_run()
        frames = [] if current is None else thread_frames(self._thread_id)
        if blocked_at != self._alive_at:
            current = None  # it went on meanwhile
        for source in [*self.sources]:
            source.look(current, frames)

    def _current_run(self) -> Run | None:
        """Return the run whose handler executes on the loop right now."""
        current = asyncio.current_task(self._loop)
        runs = (run for source in [*self.sources] for run in source.runs())
        return next((run for run in runs if run.slot is current), None)
