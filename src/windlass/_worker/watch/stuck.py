"""StuckWatch: finds handlers that run on after their timeout, names them, and opens slots in their place."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from time import perf_counter
from types import FrameType

from msgspec import Struct

from ..._model.limit import Limit
from ..._model.record import MAX_STUCK, StuckHandler
from ..._model.task import Task
from ..._observe.events import EventName, event_of
from ..._observe.observed_store import ObservedStore
from ..._policy.input.quote import counted
from ..._policy.order.limits import Subject, permits_of
from ..._store.protocol import all_records
from ..._timers import wait_for_event
from ...errors import StoreError, WindlassError
from ..run import Phase, Run
from .stack import place_of, run_frames, stack_of

logger = logging.getLogger("windlass.worker")

STUCK_AFTER = 1.0  # seconds after its timeout, and after it was asked to stop
LONG = 0.05  # seconds: `ended` needs to know of runs that took as long
_MAX_ENDED = 8  # of these, to name them if they blocked the loop
_READ_AGAIN_AFTER, _READ_LATER_AFTER = 1.0, 60.0  # seconds, if the limits could not be read


class _Stuck(Struct, eq=False):
    """A run that is stuck, until it ends."""

    run: Run
    place: str
    holds: bool  # its slot is never given to another


class _Ended(Struct, frozen=True):
    """A task whose run took long, by the clock of the runs."""

    task: Task
    started: float
    at: float


class StuckWatch:
    """The stuck handlers of one worker. `look` is called in the thread of the loop watch.

    `recycle` is called on the loop when one more is stuck while as many replaced ones as there are slots
    still run; None if nothing would start this process again.
    """

    def __init__(self, store: ObservedStore, slots: int) -> None:
        self.running: Callable[[], Iterable[Run]] = tuple
        self.recycle: Callable[[str], object] | None = None
        self._store = store
        self._slots = slots
        self._loop: asyncio.AbstractEventLoop | None = None  # of the worker
        self._stuck: dict[Run, _Stuck] = {}  # changed in the thread of the loop watch only
        self._reporting = threading.Lock()
        self._looked_at = self._unseen_until = perf_counter()
        self._blocking: Run | None = None  # was seen to block the loop, which has not gone on since
        self._ended: deque[_Ended] = deque(maxlen=_MAX_ENDED)
        self._found = asyncio.Event()
        self._is_worn_out = False  # one more was once stuck than could be replaced

    def runs(self) -> list[Run]:
        """Return the runs that hold a slot now. Safe to call from any thread."""
        return [*self.running()]

    def described(self) -> tuple[StuckHandler, ...]:
        """Describe the handlers that are stuck, those that were found first if they are many."""
        now = perf_counter()
        return tuple(_described(one, now) for one in islice([*self._stuck.values()], MAX_STUCK))

    # -- in the thread of the loop watch -----------------------------------------------------------------

    def look(self, current: Run | None, frames: Sequence[FrameType]) -> None:
        """Name the handlers that have become stuck, and forget those that have ended.

        `current` is the run that blocks the loop, and `frames` are those of the loop's thread.
        """
        now, running = perf_counter(), self.runs()
        if now >= self._looked_at + _unseen_after():
            self._unseen_until = now
        self._looked_at, self._blocking = now, current
        for run in running:
            if _is_stuck(run, now, is_current=run is current) and self._may_report(run):
                self._add(run, frames if run is current else run_frames(run), is_current=run is current)
        if self._stuck:
            self._forget_ended(running)
        needs_loop = not self._is_worn_out or self._has_room()
        if self._loop is not None and needs_loop and any(map(_may_replace, self._stuck.values())):
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._found.set)

    def _add(self, run: Run, frames: Sequence[FrameType], *, is_current: bool) -> None:
        place, stack = place_of(run, frames), stack_of(run, frames)
        replaces = run.spec.on_stuck == "replace"  # also if its thread, on a busy machine, has yet to start
        self._stuck[run] = _Stuck(run, place, holds=not replaces)
        task, timeout = run.task, _timeout(run.task)
        text = "the handler of %s (task %s) still runs %.1f s after its timeout of %g s%s; %s"
        where = f", at {place}" if place else ""
        what = _BLOCKS if is_current else _effect(run, replaces=replaces, has_room=self._has_room())
        arguments = (task.type, task.id, perf_counter() - run.started - timeout, timeout, where, what)
        extra = {"task_id": task.id, "task_type": task.type, "place": place}
        if logger.isEnabledFor(logging.WARNING):
            logger.handle(
                logger.makeRecord(
                    logger.name, logging.WARNING, __file__, 0, text, arguments, None, "look", extra, stack
                )
            )
        self._store.emit(event_of(EventName.STUCK, task))

    def _may_report(self, run: Run) -> bool:
        """Whether a run was not reported yet; note that it is."""
        with self._reporting:
            is_first, run.is_reported = not run.is_reported, True
        return is_first

    def _forget_ended(self, running: Iterable[Run]) -> None:
        """Forget what has ended: what holds no slot and no thread."""
        held = {*running}
        for run in [*self._stuck]:
            if run not in held and run.thread is None:
                del self._stuck[run]
                after = perf_counter() - run.started - _timeout(run.task)
                text = "the handler of %s (task %s) has ended, %.1f s after its timeout%s"
                dropped = "; its outcome is dropped, as its slot was used again" if run.is_replaced else ""
                extra = {"task_id": run.task.id, "task_type": run.task.type}
                logger.info(text, run.task.type, run.task.id, after, dropped, extra=extra)

    # -- on the loop -------------------------------------------------------------------------------------

    def ended(self, run: Run, seconds: float) -> None:
        """Take note of a run that took LONG or longer; report it if it was stuck and nobody could see it."""
        now = run.started + seconds
        if not run.spec.process:
            self._ended.append(_Ended(run.task, run.started, now))
        if now < run.times_out_at + STUCK_AFTER or run.is_reported:
            return
        if self._overran(run, now) and self._may_report(run):
            task = run.task
            logger.warning(
                "the handler of %s (task %s) ended %.1f s after its timeout of %g s, having run %.1f s, and "
                "was not seen while it ran on%s",
                task.type,
                task.id,
                now - run.times_out_at,
                _timeout(task),
                seconds,
                "" if self._could_look(run, now) else _UNSEEN,
                extra={"task_id": task.id, "task_type": task.type},
            )
            self._store.emit(event_of(EventName.STUCK, task))

    def _overran(self, run: Run, now: float) -> bool:
        """Whether it ran on by itself after its timeout, and did not only wait for a loop that was blocked.

        If that was asked to stop late, a coroutine could not go on before, and a thread could.
        """
        if now >= run.asked_at + STUCK_AFTER or run is self._blocking:
            return True
        was_asked = run.asked_at < float("inf")
        return not self._could_look(run, now) and not (was_asked and run.spec.is_async)

    def _could_look(self, run: Run, now: float) -> bool:
        """Whether the thread of the loop watch ran all the time since this run timed out."""
        return now < self._looked_at + _unseen_after() and self._unseen_until < run.times_out_at

    def ran_between(self, since: float, now: float) -> list[Task]:
        """Return the tasks that ran here for half of that time or more, those first that have ended."""
        middle = (since + now) / 2
        ended = [one.task for one in self._ended if one.started <= middle <= one.at]
        return ended + [run.task for run in self.runs() if run.started <= middle and not run.spec.process]

    async def replace(self) -> None:
        """Open slots in place of handlers with on_stuck="replace", until cancelled."""
        self._loop, never = asyncio.get_running_loop(), asyncio.Event()
        while True:
            await self._found.wait()
            self._found.clear()
            try:
                limits = await all_records(self._store, Limit)
            except WindlassError as error:  # until the limits are known, all keep their slots
                await wait_for_event(never, _pause_after(error))
                continue
            for one in filter(_may_replace, [*self._stuck.values()]):
                self._replace(one, limits)

    def _has_room(self) -> bool:
        """Whether fewer threads were replaced and still run than there are slots."""
        return sum(one.run.is_replaced for one in [*self._stuck.values()]) < self._slots

    def _replace(self, one: _Stuck, limits: Iterable[Limit]) -> None:
        task = one.run.task
        if capped := _running_limits(limits, task):
            one.holds = True
            text = "the handler of %s (task %s) keeps its slot despite on_stuck='replace': limit %s counts it"
            logger.warning(text, task.type, task.id, ", ".join(capped))
            return
        if self._has_room():
            one.run.replace()
        elif not self._is_worn_out:
            self._is_worn_out = True
            self._wear_out()

    def _wear_out(self) -> None:
        """Report that this one cannot be replaced while the others run, and have this process recycled."""
        handlers = counted(self._slots, "replaced handler")
        run = "runs" if self._slots == 1 else "run"
        why = f"{handlers} still {run}, as many as there are slots, and another handler is stuck"
        remedy = "; restart this program" if self.recycle is None else ""
        logger.error(
            "%s: it and others that overrun their timeout keep their slots until one ends%s", why, remedy
        )
        if self.recycle is not None:
            self.recycle(why)


_UNSEEN = (
    ": no other thread could run, as a handler held Python's lock (the GIL) in C code, or the machine was "
    "overloaded"
)
_BLOCKS = (
    "it blocks the event loop: until it ends, no other async handler of this worker goes on, and nothing is "
    "claimed or settled"
)


def _unseen_after() -> float:
    """Return the seconds without a look after which a run may have been stuck unseen; two looks are due."""
    return STUCK_AFTER / 2


def _pause_after(error: WindlassError) -> float:
    """Return the seconds until the limits are read again; claims and heartbeats report outages."""
    if isinstance(error, StoreError) and error.transient:
        return _READ_AGAIN_AFTER
    logger.warning("cannot read the limits, so stuck handlers keep their slots: %s", error)
    return _READ_LATER_AFTER


def _effect(run: Run, *, replaces: bool, has_room: bool) -> str:
    if replaces and not has_room:
        return "it keeps its slot until it or one of the replaced handlers has ended"
    if replaces:
        return (
            "its attempt ends as timed out and its slot is given to another task, unless a limit on running "
            "tasks counts it"
        )
    if run.spec.process:
        return "it keeps its slot until its child process, which was killed, has ended"
    if run.spec.is_async:
        return "it goes on after its cancellation, and keeps its slot until it ends"
    return "it keeps its slot until it ends: what it waits for needs a timeout of its own"


def _is_stuck(run: Run, now: float, *, is_current: bool) -> bool:
    if now < run.times_out_at + STUCK_AFTER:
        return False
    # A coroutine that blocks its loop cannot be asked to stop; others are asked when the loop goes on.
    return is_current or now >= run.asked_at + STUCK_AFTER


def _may_replace(one: _Stuck) -> bool:
    """Whether a slot is to be opened in its place, once the limits are known."""
    run = one.run
    is_open = run.phase is Phase.RUNNING and run.thread is not None and not run.is_replaced
    return is_open and not one.holds and not run.is_lost


def _timeout(task: Task) -> float:
    return 0.0 if task.timeout is None else task.timeout.total_seconds()


def _described(one: _Stuck, now: float) -> StuckHandler:
    run = one.run
    return StuckHandler(
        task_id=run.task.id,
        type=run.task.type,
        attempt=run.task.attempt,
        overrun=round(now - run.started - _timeout(run.task), 1),
        place=one.place,
        replaced=run.is_replaced,
    )


def _running_limits(limits: Iterable[Limit], task: Task) -> list[str]:
    """Return the names of the limits on running tasks that count this one."""
    subject = Subject(task.queue, task.type, task.tenant, task.payload)
    return [one.limit.name for one in permits_of(limits, subject) if one.limit.running is not None]
