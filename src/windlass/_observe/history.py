"""HistoryRecorder: counts what this process settles, and stores the counts as parts of history."""

import asyncio
import logging
import random
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from threading import Lock
from time import monotonic

from msgspec.structs import replace

from .._ids import new_id
from .._model.filter import MAX_PAGE, Filter, Page
from .._model.lease import CLOSE_TIMEOUT
from .._model.record import HistoryBucket, HistorySeries
from .._model.state import ENDED
from .._model.task import Task, TaskId
from .._model.transition import TaskTransition
from .._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Settlement
from .._policy.history.buckets import OTHER, TEN_SECONDS, bounded, part_name
from .._policy.history.histogram import CELLS, EDGES, histogram
from .._store.protocol import Store
from ..errors import StoreError
from .events import waited_seconds

logger = logging.getLogger("windlass.history")

MAX_WAITING = 60
"""Parts to keep while the store is out of reach: ten minutes. Then the oldest are dropped."""

MAX_TALLIES = 1_000
MAX_UNKNOWN = 5_000
_TIMED = 8  # tasks of a batch
_LENGTH = TEN_SECONDS.length.total_seconds()
_JITTER = 1.0  # seconds, so that not all processes write at once


class _Tally:
    """The counts of one queue and type. `wait` and `run` have a number for each cell."""

    __slots__ = ("buried", "cancelled", "completed", "expired", "retried", "run", "wait")

    def __init__(self) -> None:
        self.completed = self.retried = self.buried = self.cancelled = self.expired = 0
        self.wait, self.run = [0] * CELLS, [0] * CELLS

    def add_times(self, settlement: Settlement, task: Task, number: int = 1) -> None:
        """Add how long a task waited and ran, as if so many had."""
        if settlement.duration:  # 0: it did not run, or nobody knows how long
            self.run[bisect_right(EDGES, settlement.duration)] += number
        waited = waited_seconds(task)
        if waited is not None:
            self.wait[bisect_right(EDGES, waited)] += number

    def series(self, queue: str, type_name: str) -> HistorySeries:
        return HistorySeries(
            queue=queue,
            type=type_name,
            completed=self.completed,
            retried=self.retried,
            buried=self.buried,
            cancelled=self.cancelled,
            expired=self.expired,
            wait=histogram(dict(enumerate(self.wait))),
            run=histogram(dict(enumerate(self.run))),
        )


class _Part:
    """What was counted of the bucket that starts at `start`, in seconds since 1970; None: not known yet."""

    def __init__(self, start: float | None) -> None:
        self.start = start
        self.tallies: dict[tuple[str, str], _Tally] = {}
        self.unknown: dict[TaskId, Settlement] = {}  # of tasks that another process claimed
        self._id = new_id()[-12:]  # the random end

    def tally(self, queue: str, type_name: str) -> _Tally:
        """Return the counts of a queue and type; beyond `MAX_TALLIES`, those of all others."""
        found = self.tallies.get((queue, type_name))
        if found is None:
            if len(self.tallies) >= MAX_TALLIES:
                queue = type_name = OTHER
            found = self.tallies.setdefault((queue, type_name), _Tally())
        return found

    def add(self, settlement: Settlement, task: Task) -> None:
        """Count a settlement that was applied. What was handed back was no attempt."""
        verdict = settlement.verdict
        if isinstance(verdict, Postpone) and verdict.reason is not Reason.RETRY:
            return
        tally = self.tally(task.queue, task.type)
        tally.completed += isinstance(verdict, Complete)
        tally.retried += isinstance(verdict, Postpone)
        tally.buried += isinstance(verdict, Bury)
        tally.cancelled += isinstance(verdict, Cancel)
        tally.add_times(settlement, task)

    def record(self) -> HistoryBucket:
        """Return it as a record, always under the same name."""
        series = (tally.series(*names) for names, tally in self.tallies.items())
        start = datetime.fromtimestamp(self.start or 0.0, UTC)
        return HistoryBucket(name=part_name(start, self._id), series=bounded(series))


class HistoryRecorder:
    """Counts settled tasks by queue and type, in buckets of ten seconds of the store's clock. Thread-safe.

    What was counted of a bucket is stored when the bucket is over, and when the process stops. A process that
    crashes loses what it had counted since. An error of the store is never raised: history is statistics.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = Lock()
        self._ahead: float | None = None  # the store's clock, of `monotonic`; None: not known yet
        self._part: _Part | None = None
        self._waiting: deque[_Part] = deque(maxlen=MAX_WAITING)
        self._runs = 0
        self._is_asked = False

    # -- count ---------------------------------------------------------------------------------------

    def settled(self, settlements: Iterable[tuple[Settlement, Task | None]]) -> None:
        """Count settlements that were applied; None: the task was claimed elsewhere, and is looked up."""
        with self._lock:
            part = self._current()
            for settlement, task in settlements:
                if task is not None:
                    part.add(settlement, task)
                elif len(part.unknown) < MAX_UNKNOWN:
                    part.unknown[settlement.lease.task_id] = settlement

    def completed(self, settlements: Sequence[Settlement], tasks: Sequence[Task | None]) -> None:
        """Count a batch of completed tasks. This costs a busy worker as little as can be.

        Of a large batch every task is counted, but only some are timed, each of them for several.
        """
        known = [task for task in tasks if task is not None]
        if len(known) < len(tasks):
            self.settled(zip(settlements, tasks, strict=True))
            return
        stride = len(tasks) // _TIMED + 1
        with self._lock:
            part = self._current()
            queues, types = {task.queue for task in known}, {task.type for task in known}
            if len(queues) == len(types) == 1:  # most often, and quicker
                part.tally(*queues, *types).completed += len(known)
            else:
                for names, number in Counter([(task.queue, task.type) for task in known]).items():
                    part.tally(*names).completed += number
            for settlement, task in zip(settlements[::stride], known[::stride], strict=True):
                part.tally(task.queue, task.type).add_times(settlement, task, stride)

    def cancelled(self, transition: TaskTransition, *, expired: bool) -> None:
        """Count a task that was cancelled by an operator, by its predecessor or by its expiry."""
        with self._lock:
            tally = self._current().tally(transition.queue, transition.type)
            tally.expired += expired
            tally.cancelled += not expired

    def _current(self) -> _Part:
        """Return the part of the present bucket; one that is over waits to be stored."""
        self._finish_if_over()
        if self._part is None:
            self._part = _Part(None if self._ahead is None else _bucket_at(monotonic() + self._ahead))
        return self._part

    def _finish_if_over(self) -> None:
        part, ahead = self._part, self._ahead
        if part is None or part.start is None or ahead is None:
            return
        if not part.start <= monotonic() + ahead < part.start + _LENGTH:
            self._waiting.append(part)
            self._part = None

    # -- store ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Store each part when its bucket is over, until cancelled; then what is left."""
        self._runs += 1
        try:
            while True:
                if self._ahead is None or self._part is not None or self._waiting:  # else: only asks the time
                    await self.flush()
                left = _LENGTH - (monotonic() + (self._ahead or 0.0)) % _LENGTH
                await asyncio.sleep(left + random.random() * _JITTER)
        finally:
            self._runs -= 1
            await self.close()

    def ask_for_flush(self) -> bool:
        """Tell whether to call `flush` now, as there is something to store and `run` is not running here.

        Whoever is told so must do it: nobody else is, until then.
        """
        if self._runs or self._is_asked or not (self._waiting or (self._part and self._ahead is None)):
            return False
        self._is_asked = True
        return True

    async def close(self) -> None:
        """Store all that was counted, if the store can be reached."""
        if self._part is None and not self._waiting:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.flush(everything=True)

    async def flush(self, *, everything: bool = False) -> None:
        """Store the parts whose bucket is over, or all. What the store does not take now is kept."""
        try:
            await self._set_clock()
            with self._lock:
                self._finish_if_over()
                if everything and self._part is not None:
                    self._waiting.append(self._part)
                    self._part = None
            for part in iter(self._next, None):
                await self._put(part)
        except StoreError:
            return  # tried again when the next bucket is over
        finally:
            self._is_asked = False

    async def _set_clock(self) -> None:
        before = monotonic()
        now = (await self._store().now()).timestamp()
        with self._lock:
            self._ahead = now - (before + monotonic()) / 2
            if self._part is not None and self._part.start is None:
                self._part.start = _bucket_at(now)

    def _next(self) -> _Part | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    async def _put(self, part: _Part) -> None:
        try:
            await self._look_up(part)
            if part.tallies:
                await self._store().put(part.record())
        except (StoreError, asyncio.CancelledError):
            with self._lock:
                if len(self._waiting) < MAX_WAITING:
                    self._waiting.appendleft(part)
            raise
        except Exception:
            logger.exception("cannot store what was counted for the history; dropping it")

    async def _look_up(self, part: _Part) -> None:
        """Count the tasks that another process claimed, which is how `windlass serve --processes` works."""
        while ids := tuple(islice(part.unknown, MAX_PAGE)):
            found = await self._store().find(Filter(ids=ids), Page(limit=MAX_PAGE))
            for task in found.items:
                # A task that is retried has its next run_at by now, so how long it waited is not known.
                known = task if task.state in ENDED else replace(task, claimed_at=None)
                part.add(part.unknown[task.id], known)
            for task_id in ids:
                del part.unknown[task_id]


def _bucket_at(seconds: float) -> float:
    """Return the start of the bucket of an instant, in seconds since 1970."""
    return seconds // _LENGTH * _LENGTH
