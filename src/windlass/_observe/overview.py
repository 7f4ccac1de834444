"""The overview of a store: queue depths, workers, limits, schedules, alerts at one moment; and a cache."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._model.alert import Alert, AlertState
from .._model.filter import MAX_PAGE, Count, Dimension, Filter, Page
from .._model.limit import Limit, Usage
from .._model.options import DeclaredType
from .._model.queue import QueueSettings
from .._model.record import Declaration, Session
from .._model.schedule import Schedule, Tick
from .._model.state import PENDING, State
from .._policy.live_workers import LiveWorkers
from .._policy.order.windows import closed_until
from .._policy.ticks import overdue
from .._store.protocol import Store, all_records
from ..errors import InvalidOption
from .cached_reads import READ_TIMEOUT, CachedReads

COUNTED = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)
"""The states that are counted: open tasks and dead letters. Counters cover tasks that completed."""

EVERYTHING = Filter()
MAX_USAGES = 10_000
"""Values of limits to read at most: a limit by tenant may have any number of them."""

SOON = timedelta(minutes=1)
"""Until when scheduled tasks are due soon; what a worker hands back, as it has no handler, is among them."""

_PART = 5_000  # counts that are read in one turn of the loop

MAX_AGE = timedelta(seconds=5)
"""Age at which a cached overview is read again."""


class Depth(Struct, frozen=True, gc=False, kw_only=True):
    """Number of tasks of a queue, type and state, and when the oldest of them was due."""

    queue: str
    type: str
    state: State
    number: int
    exact: bool = True  # False: an estimate
    oldest_at: datetime | None = None


class TenantDepth(Struct, frozen=True, gc=False, kw_only=True):
    """Number of tasks of a tenant and state in a queue, and when the oldest of them was due."""

    tenant: str
    state: State
    number: int
    exact: bool = True
    oldest_at: datetime | None = None


class TenantDepths(Struct, frozen=True, kw_only=True):
    """The tenants of a queue at one moment of the store's clock."""

    at: datetime
    depths: tuple[TenantDepth, ...]


class Capacity(Struct, frozen=True, gc=False):
    """Workers that serve a queue, their slots, and how many of these are busy with tasks of any queue."""

    workers: int = 0
    slots: int = 0
    busy: int = 0

    def __add__(self, other: "Capacity") -> "Capacity":
        return Capacity(self.workers + other.workers, self.slots + other.slots, self.busy + other.busy)


class Overview(Struct, frozen=True, kw_only=True, dict=True):
    """A store at one moment of its clock. With a filter: only depths, queues and settings.

    `limits` has the share in use of each limit, for the value that uses most of it. `schedules` has the
    seconds since the oldest unfired tick of each was due. `alerts` tells which are raised.
    """

    at: datetime
    depths: tuple[Depth, ...] = ()
    queues: tuple[str, ...] = ()  # named by tasks, settings, workers or task types
    settings: tuple[QueueSettings, ...] = ()
    declared: Mapping[str, tuple[str, ...]] = {}  # the settings of queues that programs declare in code
    workers: tuple[Session, ...] = ()  # live ones
    keeper: Session | None = None  # the leader, if there is one
    limits: Mapping[str, float] = {}
    schedules: Mapping[str, float] = {}
    alerts: Mapping[str, bool] = {}

    @cached_property
    def paused(self) -> frozenset[str]:
        return frozenset(one.name for one in self.settings if one.paused)

    @cached_property
    def closed(self) -> frozenset[str]:
        """The queues that their windows keep closed."""
        return frozenset(one.name for one in self.settings if closed_until(one, self.at) is not None)

    @property
    def slots(self) -> int:
        return sum(session.worker.slots for session in self.workers)

    @property
    def busy(self) -> int:
        """Busy slots of all workers. A worker may hold more tasks than it has slots."""
        return sum(min(session.worker.busy, session.worker.slots) for session in self.workers)

    def stuck(self) -> dict[str, int]:
        """Number of handlers of each type that run on after their timeout, replaced ones included."""
        return Counter(one.type for session in self.workers for one in session.worker.stuck)

    @cached_property
    def documents(self) -> dict[object, Any]:
        """Keeps what was made of this overview, for all that ask for the same."""
        return {}

    @cached_property
    def by_queue(self) -> Mapping[str, Sequence[Depth]]:
        """The depths of each queue, by name. With very many queues it takes a while to make, once."""
        found: dict[str, list[Depth]] = {queue: [] for queue in self.queues}
        for depth in self.depths:
            found.setdefault(depth.queue, []).append(depth)
        return found

    def oldest_ready_of(self, queue: str) -> float:
        """Seconds since the oldest ready task of a queue was due; 0 if it has none."""
        ready = (one for one in self.by_queue.get(queue, ()) if one.state is State.READY)
        due = [one.oldest_at for one in ready if one.oldest_at is not None]
        return max((self.at - min(due)).total_seconds(), 0.0) if due else 0.0

    def oldest_ready(self) -> dict[str, float]:
        """Return the same of each queue."""
        return {queue: self.oldest_ready_of(queue) for queue in self.queues}

    @cached_property
    def _capacities(self) -> Mapping[str, Capacity]:
        """Of each queue that workers name; and under "", which names none, of those that serve all."""
        found: dict[str, Capacity] = {}
        for worker in (session.worker for session in self.workers):
            own = Capacity(1, worker.slots, min(worker.busy, worker.slots))
            for queue in ("",) if worker.all_queues else worker.queues:
                found[queue] = found.get(queue, Capacity()) + own
        return found

    def capacity(self, queue: str) -> Capacity:
        """Return the workers that serve a queue."""
        known = self._capacities
        return known.get(queue, Capacity()) + known.get("", Capacity())

    def serving(self) -> dict[str, int]:
        """Number of workers that serve each queue."""
        return {queue: self.capacity(queue).workers for queue in self.queues}

    @cached_property
    def live(self) -> LiveWorkers:
        """The workers by what they serve and handle."""
        return LiveWorkers(session.worker for session in self.workers)

    def unserved(self) -> dict[str, dict[str, int]]:
        """Number of tasks by type in the queues that no live worker serves although some tasks are due.

        Scheduled ones are counted if the first of them is due soon: without a worker perhaps no keeper runs.
        """
        numbers: dict[str, dict[str, int]] = {}
        for depth in self.depths:
            is_soon = depth.state is State.SCHEDULED and depth.oldest_at and depth.oldest_at - self.at <= SOON
            if depth.number and (depth.state is State.READY or is_soon) and not self.live.serves(depth.queue):
                types = numbers.setdefault(depth.queue, {})
                types[depth.type] = types.get(depth.type, 0) + depth.number
        return numbers

    def unhandled(self) -> dict[tuple[str, str], int]:
        """Number of pending tasks by queue and type that no worker of their queue has a handler for.

        Queues without any worker are left out: `serving` has these.
        """
        numbers: Counter[tuple[str, str]] = Counter()
        for depth in self.depths:
            is_served = depth.state in PENDING and self.live.serves(depth.queue)
            if is_served and not self.live.handles(depth.queue, depth.type):
                numbers[depth.queue, depth.type] += depth.number
        return dict(numbers)


class OverviewCache(CachedReads[Filter, Overview]):
    """The newest overview of each filter, for all that ask for it. For one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        max_age: timedelta = MAX_AGE,
        timeout: timedelta = READ_TIMEOUT,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        async def read(where: Filter) -> Overview:
            await store.open()
            return await read_overview(store, where)

        super().__init__(read, "queues and workers", max_age=max_age, timeout=timeout, clock=clock)

    async def get(self, key: Filter = EVERYTHING) -> Overview:
        """Return the overview of everything, or of what matches. Raises StoreError."""
        return await super().get(key)


async def read_overview(store: Store, where: Filter = EVERYTHING) -> Overview:
    """Read the overview of the whole store, or of the tasks that match a filter of tenants and queues."""
    by = (Dimension.QUEUE, Dimension.TYPE, Dimension.STATE)
    depths = await _depths(await store.count(replace(where, states=COUNTED), by))
    settings = tuple(await all_records(store, QueueSettings))
    declared = {
        one.subject: tuple(sorted(msgspec.json.decode(one.body)))
        for one in await all_records(store, Declaration)
        if one.kind == "queue"
    }
    queues = _names(depths, where.queues or ())
    seen = Overview(at=await store.now(), depths=depths, queues=queues, declared=declared)
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


async def _depths(counts: Sequence[Count]) -> tuple[Depth, ...]:
    """Return the depths that are counted. In parts: there may be very many, and the loop has more to do."""
    depths: list[Depth] = []
    for start in range(0, len(counts), _PART):
        depths += [
            Depth(
                queue=count.values[0],
                type=count.values[1],
                state=State(count.values[2]),
                number=count.number,
                exact=count.exact,
                oldest_at=count.oldest_at,
            )
            for count in counts[start : start + _PART]
        ]
        await asyncio.sleep(0)
    return tuple(depths)


async def read_tenants(store: Store, where: Filter) -> TenantDepths:
    """Read how many tasks the tenants of the filter's queue have in each state."""
    # By queue as well: a store can then count a short queue exactly beside long ones.
    counts = await store.count(
        replace(where, states=COUNTED), (Dimension.QUEUE, Dimension.TENANT, Dimension.STATE)
    )
    return TenantDepths(
        at=await store.now(),
        depths=tuple(
            TenantDepth(
                tenant=count.values[1],
                state=State(count.values[2]),
                number=count.number,
                exact=count.exact,
                oldest_at=count.oldest_at,
            )
            for count in counts
        ),
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
