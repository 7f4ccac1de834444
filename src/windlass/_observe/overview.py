"""The overview of a store: queue depths, workers, limits, schedules, alerts at one moment; and a cache."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from .._model.alert import Alert, AlertState
from .._model.filter import MAX_PAGE, Dimension, Filter, Page
from .._model.limit import Limit, Usage
from .._model.options import DeclaredType
from .._model.queue import QueueSettings
from .._model.record import Session
from .._model.schedule import Schedule, Tick
from .._model.state import PENDING, State
from .._policy.order.windows import closed_until
from .._policy.ticks import overdue
from .._store.protocol import Store, all_records
from ..errors import InvalidOption, StoreUnavailable

COUNTED = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)
"""The states that are counted: open tasks and dead letters. Counters cover tasks that completed."""

EVERYTHING = Filter()
MAX_USAGES = 10_000
"""Values of limits to read at most: a limit by tenant may have any number of them."""

MAX_AGE = timedelta(seconds=5)
"""Age at which a cached overview is read again."""

READ_TIMEOUT = timedelta(seconds=8)
"""Time to read an overview; Prometheus gives up on a scrape after ten seconds."""

_SHARE = 10
_MAX_CACHED = 200


class Depth(Struct, frozen=True, gc=False, kw_only=True):
    """Number of tasks of a queue, type and state, and when the oldest of them was due."""

    queue: str
    type: str
    state: State
    number: int
    exact: bool = True  # False: an estimate
    oldest_at: datetime | None = None


class Overview(Struct, frozen=True, kw_only=True):
    """A store at one moment of its clock. With a filter: only depths, queues and settings.

    `limits` has the share in use of each limit, for the value that uses most of it. `schedules` has the
    seconds since the oldest unfired tick of each was due. `alerts` tells which are raised.
    """

    at: datetime
    depths: tuple[Depth, ...] = ()
    queues: tuple[str, ...] = ()  # named by tasks, settings, workers or task types
    settings: tuple[QueueSettings, ...] = ()
    workers: tuple[Session, ...] = ()  # live ones
    keeper: Session | None = None  # the leader, if there is one
    limits: Mapping[str, float] = {}
    schedules: Mapping[str, float] = {}
    alerts: Mapping[str, bool] = {}

    @property
    def paused(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.settings if one.paused)

    @property
    def closed(self) -> tuple[str, ...]:
        """The queues that their windows keep closed."""
        return tuple(one.name for one in self.settings if closed_until(one, self.at) is not None)

    @property
    def slots(self) -> int:
        return sum(session.worker.slots for session in self.workers)

    @property
    def busy(self) -> int:
        """Busy slots of all workers. A worker may hold more tasks than it has slots."""
        return sum(min(session.worker.busy, session.worker.slots) for session in self.workers)

    def oldest_ready(self) -> dict[str, float]:
        """Seconds since the oldest ready task of each queue was due; 0 if it has none."""
        ages = dict.fromkeys(self.queues, 0.0)
        for depth in self.depths:
            if depth.state is State.READY and depth.oldest_at is not None:
                ages[depth.queue] = max(ages[depth.queue], (self.at - depth.oldest_at).total_seconds())
        return ages

    def serving(self) -> dict[str, int]:
        """Number of workers that serve each queue."""
        served = Counter(queue for session in self.workers for queue in session.worker.queues)
        everywhere = sum(session.worker.all_queues for session in self.workers)
        return {queue: served[queue] + everywhere for queue in self.queues}

    def unhandled(self) -> dict[tuple[str, str], int]:
        """Number of pending tasks by queue and type that no worker of their queue has a handler for.

        Queues without any worker are left out: `serving` has these.
        """
        numbers: Counter[tuple[str, str]] = Counter()
        for depth in self.depths:
            serving = [
                one.worker
                for one in self.workers
                if one.worker.all_queues or depth.queue in one.worker.queues
            ]
            if serving and depth.state in PENDING and not any(one.handles(depth.type) for one in serving):
                numbers[depth.queue, depth.type] += depth.number
        return dict(numbers)


class OverviewCache:
    """The newest overview of each filter. For one event loop.

    Concurrent callers share one read. The next read starts no sooner than `max_age` after the last, nor
    before nine times its duration has passed, so that reading takes at most a tenth of the store's time. A
    failed read counts as one, so that a store in trouble is not read more often.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_age: timedelta = MAX_AGE,
        timeout: timedelta = READ_TIMEOUT,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._max_age = max_age.total_seconds()
        self._timeout = timeout.total_seconds()
        self._clock = clock
        self._cached: dict[Filter, _Cached] = {}

    async def get(self, where: Filter = EVERYTHING) -> Overview:
        """Return the overview of everything, or of what matches. Raises StoreError."""
        cached = self._cached.get(where)
        if cached is None or (cached.read.done() and self._clock() >= cached.fresh_until):
            cached = self._start(where)
        # Shielded: a caller that is cancelled must not cancel the read that others wait for.
        return await asyncio.shield(cached.read)

    def forget(self) -> None:
        """Read again when next asked: what was read may show what has been removed since."""
        self._cached.clear()

    def _start(self, where: Filter) -> "_Cached":
        self._cached.pop(where, None)
        for oldest in [*self._cached][: max(len(self._cached) + 1 - _MAX_CACHED, 0)]:
            del self._cached[oldest]
        read = asyncio.create_task(self._read(where))
        cached = self._cached[where] = _Cached(read)
        began = self._clock()

        def done(finished: "asyncio.Task[Overview]") -> None:
            now = self._clock()
            cached.fresh_until = now + max(self._max_age, (now - began) * (_SHARE - 1))
            if not finished.cancelled():
                finished.exception()  # retrieved, so that asyncio does not log it as never retrieved

        read.add_done_callback(done)
        return cached

    async def _read(self, where: Filter) -> Overview:
        try:
            async with asyncio.timeout(self._timeout):
                await self._store.open()
                return await read_overview(self._store, where)
        except TimeoutError:
            raise StoreUnavailable(
                f"timed out after {self._timeout:g} s reading queues and workers from the store"
            ) from None


class _Cached(Struct):
    """A read of the store, under way or done."""

    read: asyncio.Task[Overview]
    fresh_until: float = inf  # until its done callback has run


async def read_overview(store: Store, where: Filter = EVERYTHING) -> Overview:
    """Read the overview of the whole store, or of the tasks that match a filter of tenants and queues."""
    by = (Dimension.QUEUE, Dimension.TYPE, Dimension.STATE)
    depths = tuple(
        Depth(
            queue=count.values[0],
            type=count.values[1],
            state=State(count.values[2]),
            number=count.number,
            exact=count.exact,
            oldest_at=count.oldest_at,
        )
        for count in await store.count(replace(where, states=COUNTED), by)
    )
    settings = tuple(await all_records(store, QueueSettings))
    seen = Overview(at=await store.now(), depths=depths, queues=_names(depths, where.queues or ()))
    if where != EVERYTHING:
        return replace(seen, settings=tuple(one for one in settings if one.name in seen.queues))
    sessions = [one for one in await all_records(store, Session) if one.expires_at > seen.at]
    workers = tuple(one for one in sessions if not one.worker.keeper)
    named = {one.name for one in settings} | {queue for one in workers for queue in one.worker.queues}
    named |= {one.defaults.queue for one in await all_records(store, DeclaredType)}
    return replace(
        seen,
        queues=_names(depths, sorted(named)),
        settings=settings,
        workers=workers,
        keeper=next((one for one in sessions if one.worker.keeper), None),
        limits=await _limits(store),
        schedules=await _schedules(store, seen.at),
        alerts=await _alerts(store),
    )


def _names(depths: Sequence[Depth], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*others, *(depth.queue for depth in depths)}))


async def _limits(store: Store) -> dict[str, float]:
    limits = await all_records(store, Limit)
    usages: dict[str, list[Usage]] = defaultdict(list)
    page: Page | None = Page(limit=MAX_PAGE) if limits else None
    read = 0
    while page is not None and read < MAX_USAGES:
        found = await store.records(Usage, page)
        for usage in found.items:
            usages[usage.limit].append(usage)
        read += len(found.items)
        page = None if found.cursor is None else replace(page, cursor=found.cursor)
    unused = Usage(name="", limit="", value="", running=0)
    return {limit.name: max(map(limit.used, usages[limit.name] or [unused])) for limit in limits}


async def _schedules(store: Store, now: datetime) -> dict[str, float]:
    schedules = await all_records(store, Schedule)
    ticks = {tick.name: tick for tick in await all_records(store, Tick)} if schedules else {}
    lags = {}
    for schedule in schedules:
        try:
            lag = overdue(schedule, ticks.get(schedule.name), now)
        except InvalidOption:  # an invalid rule; the keeper logs it
            continue
        lags[schedule.name] = lag.total_seconds()
    return lags


async def _alerts(store: Store) -> dict[str, bool]:
    """Return whether each alert is raised, as the leading keeper last decided."""
    alerts = await all_records(store, Alert)
    states = await all_records(store, AlertState) if alerts else ()
    raised = {state.name for state in states if state.raised_at is not None}
    return {alert.name: alert.name in raised for alert in alerts}
