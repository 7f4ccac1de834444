"""Wait for tasks to end: one question to the store for all calls that wait on an event loop."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextvars import Context
from weakref import WeakKeyDictionary

from ..._model.filter import MAX_PAGE, Filter, Page
from ..._model.state import ENDED
from ..._model.task import Task, TaskId
from ..._observe.events import Event, EventName
from ..._observe.observed_store import ObservedStore
from ..._store.forward import ForwardingStore
from ..._store.protocol import Store
from ..._timers import Timer
from ...errors import StoreUnavailable

FIRST_PAUSE, LAST_PAUSE = 0.005, 0.2
"""Seconds between questions about a task: half of the time that it has been waited for, within these."""

OUTAGE_SECONDS = 10.0
"""How long the store may be unavailable until those who wait get its error."""

_GAP, _LONGEST_GAP = 0.001, 0.04  # seconds between rounds: for each task that is waited for, and at most
_TASKS_AT_ONCE = 50  # that one call reads: their results may be large
_ENDS = frozenset(
    {
        EventName.COMPLETED,
        EventName.BURIED,
        EventName.CANCELLED,
        EventName.EXPIRED,
        EventName.DISCARDED,
    }
)


async def wait_for_end(store: Store, task_id: TaskId, seconds: float | None) -> Task | None:
    """Return the task once it has ended; None if the time is up, or if it may be gone: the caller looks.

    `seconds`: None waits for ever. Raises what the store raises, but StoreUnavailable only after a while.
    """
    return await _waiter_of(store).wait(store, task_id, seconds)


class Waiter:
    """The calls that wait for tasks of one store, on all event loops; a sink of the store's events."""

    def __init__(self) -> None:
        self.loops: dict[asyncio.AbstractEventLoop, LoopWaits] = {}  # on which any call waits

    async def wait(self, store: Store, task_id: TaskId, seconds: float | None) -> Task | None:
        loop = asyncio.get_running_loop()
        waits = self.loops.get(loop)
        if waits is None:
            waits = self.loops[loop] = LoopWaits(store, lambda: self.loops.pop(loop, None))
        return await waits.wait(task_id, seconds)

    def wants(self, name: EventName) -> bool:
        return name in _ENDS and bool(self.loops)

    def take(self, event: Event) -> None:
        """Take the news of an end, in any thread. It is a hint: its transaction may yet be rolled back."""
        for loop, waits in tuple(self.loops.items()):
            if event.task_id in waits:
                try:
                    loop.call_soon_threadsafe(waits.hint, event.task_id)
                except RuntimeError:  # that loop was closed while calls waited on it
                    self.loops.pop(loop, None)


class _Wait:
    """A task that is waited for."""

    __slots__ = ("asked_at", "futures", "since")

    def __init__(self, now: float) -> None:
        self.since = self.asked_at = now  # who waits has just read it
        self.futures: set[asyncio.Future[Task | None]] = set()

    @property
    def pause(self) -> float:
        """Seconds from the last question to the next."""
        return min(max((self.asked_at - self.since) / 2, FIRST_PAUSE), LAST_PAUSE)


class LoopWaits:
    """The calls that wait on one event loop. Between rounds of questions there is a timer, and no task."""

    def __init__(self, store: Store, on_idle: Callable[[], object]) -> None:
        self._store = store
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._waits: dict[TaskId, _Wait] = {}
        self._hinted: set[TaskId] = set()
        self._timer = Timer(self._begin_round)
        self._round: asyncio.Task[None] | None = None
        self._round_ended_at = 0.0
        self._failing_since: float | None = None

    def __contains__(self, task_id: TaskId) -> bool:
        return task_id in self._waits

    async def wait(self, task_id: TaskId, seconds: float | None) -> Task | None:
        future = self._loop.create_future()
        one = self._waits.setdefault(task_id, _Wait(self._loop.time()))
        one.futures.add(future)
        self._begin_at(one.asked_at + one.pause)
        try:
            async with asyncio.timeout(seconds):
                ended: Task | None = await future
                return ended
        except TimeoutError:
            return None
        finally:
            one.futures.discard(future)
            if not one.futures and self._waits.get(task_id) is one:
                self._forget(task_id)

    def hint(self, task_id: TaskId) -> None:
        """Look at this task as soon as it may be: it is said to have ended."""
        if task_id in self._waits:
            self._hinted.add(task_id)
            self._begin_at(self._loop.time())

    def _forget(self, task_id: TaskId) -> _Wait:
        one = self._waits.pop(task_id)
        self._hinted.discard(task_id)
        if not self._waits:
            self._timer.cancel()
            self._on_idle()
        return one

    # -- rounds --------------------------------------------------------------------------------------

    def _begin_at(self, instant: float) -> None:
        """Begin a round at this instant, but not within the gap after the last."""
        if self._round is None:  # else this is called again at its end
            gap = min(len(self._waits) * _GAP, _LONGEST_GAP)
            self._timer.at(max(instant, self._round_ended_at + gap))

    def _begin_round(self) -> None:
        # Not in the context of whoever came first, which may have a trace, or take partial answers.
        self._round = self._loop.create_task(self._ask(), context=Context())

    async def _ask(self) -> None:
        now = self._loop.time()
        hinted, self._hinted = self._hinted, set()
        due = []
        for task_id, one in self._waits.items():
            if now >= one.asked_at + one.pause / 2 and task_id not in hinted:
                one.asked_at = now
                due.append(task_id)
        try:
            ended: set[TaskId] = set()
            for start in range(0, len(due), MAX_PAGE):
                ended.update(await self._store.ended(due[start : start + MAX_PAGE]))
            await self._hand_over(ended, hinted)
            self._failing_since = None
        except StoreUnavailable as error:
            self._failing_since = self._failing_since or now
            if now - self._failing_since >= OUTAGE_SECONDS:
                self._fail(error)
        except Exception as error:  # noqa: BLE001 - raised to those who wait
            self._fail(error)
        finally:
            self._round, self._round_ended_at = None, self._loop.time()
            if self._waits:
                next_at = min(one.asked_at + one.pause for one in self._waits.values())
                self._begin_at(0.0 if self._hinted else next_at)

    async def _hand_over(self, ended: set[TaskId], hinted: set[TaskId]) -> None:
        """Read tasks that have ended, and give each to those who wait for it."""
        ids = (*ended, *hinted)
        for start in range(0, len(ids), _TASKS_AT_ONCE):
            some = ids[start : start + _TASKS_AT_ONCE]
            found = await self._store.find(Filter(ids=some, states=tuple(ENDED)), Page(limit=len(some)))
            for task in found.items:
                self._finish(task.id, task)
            for task_id in ended.intersection(some):  # deleted or replayed just now, or finished above
                self._finish(task_id, None)

    def _finish(self, task_id: TaskId, task: Task | None) -> None:
        if task_id in self._waits:
            for future in _open(self._forget(task_id).futures):
                future.set_result(task)

    def _fail(self, error: Exception) -> None:
        for task_id in tuple(self._waits):
            for future in _open(self._forget(task_id).futures):
                future.set_exception(error)
                future.exception()  # not worth a warning if its call is cancelled just now


def _open(futures: Iterable["asyncio.Future[Task | None]"]) -> list["asyncio.Future[Task | None]"]:
    return [future for future in futures if not future.done()]


# -- the waiter of a store ---------------------------------------------------------------------------


def _waiter_of(store: Store) -> Waiter:
    """Return the waiter of a store; wrappers share that of the store that emits their events."""
    inner: object = store
    while isinstance(inner, ForwardingStore) and not isinstance(inner, ObservedStore):
        inner = inner.inner
    key = inner if isinstance(inner, ObservedStore) else store
    waiter = _waiters.get(key)
    if waiter is None:
        made = Waiter()
        waiter = _waiters.setdefault(key, made)
        if waiter is made and isinstance(key, ObservedStore):
            key.listen(waiter)
    return waiter


def _forget_waits_of_parent() -> None:
    for waiter in tuple(_waiters.values()):
        waiter.loops.clear()


_waiters: "WeakKeyDictionary[Store, Waiter]" = WeakKeyDictionary()
os.register_at_fork(after_in_child=_forget_waits_of_parent)
