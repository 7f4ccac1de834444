"""What is in a store at one moment, as a plain value: what waits and since when, who works, what is full."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from .._model.filter import MAX_PAGE, Dimension, Filter, Page
from .._model.limit import Limit, Usage
from .._model.queue import QueueSettings
from .._model.record import Session
from .._model.schedule import Schedule, Tick
from .._model.state import State
from .._policy.ticks import overdue
from .._store.protocol import Store, all_records
from ..errors import InvalidOption

COUNTED = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)
"""What is still to be done, or to be seen to. What has ended well is told by counters, as it ends."""

EVERYTHING = Filter()
MAX_USAGES = 10_000
"""So many values of limits are looked at: one that each tenant is counted by may have any number of them."""


class Depth(Struct, frozen=True, gc=False, kw_only=True):
    """How many tasks of a queue and type are in a state, and when the first of them was due."""

    queue: str
    type: str
    state: State
    number: int
    exact: bool = True  # False: an estimate
    oldest_at: datetime | None = None


class Overview(Struct, frozen=True, kw_only=True):
    """A store at one moment of its clock. Of some tasks only, it says nothing of workers, limits, schedules.

    `limits` has the share in use of each: of the value that uses most of it. `schedules` has the seconds for
    which each has had a tick to fire.
    """

    at: datetime
    depths: tuple[Depth, ...] = ()
    queues: tuple[str, ...] = ()  # all that tasks, settings or workers name
    settings: tuple[QueueSettings, ...] = ()  # of those of them that have any
    workers: tuple[Session, ...] = ()  # those that live
    keeper: Session | None = None  # the one that leads; None: nobody does, as far as is known
    limits: Mapping[str, float] = {}
    schedules: Mapping[str, float] = {}

    @property
    def paused(self) -> tuple[str, ...]:
        """The queues that are paused."""
        return tuple(one.name for one in self.settings if one.paused)

    @property
    def slots(self) -> int:
        """The slots of all workers."""
        return sum(session.worker.slots for session in self.workers)

    @property
    def busy(self) -> int:
        """How many of them are taken. A worker may hold a few tasks more than it has slots."""
        return sum(min(session.worker.busy, session.worker.slots) for session in self.workers)

    def oldest_ready(self) -> dict[str, float]:
        """For how many seconds the longest waiting ready task of each queue has been due; 0 without one."""
        ages = dict.fromkeys(self.queues, 0.0)
        for depth in self.depths:
            if depth.state is State.READY and depth.oldest_at is not None:
                ages[depth.queue] = max(ages[depth.queue], (self.at - depth.oldest_at).total_seconds())
        return ages

    def serving(self) -> dict[str, int]:
        """How many workers serve each queue."""
        served = Counter(queue for session in self.workers for queue in session.worker.queues)
        return {queue: served[queue] for queue in self.queues}


async def look(store: Store, where: Filter = EVERYTHING) -> Overview:
    """Look at the store, or at the tasks of some tenants and queues. The store bounds what counting costs."""
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
    workers = tuple(one for one in sessions if not one.is_keeper)
    named = [one.name for one in settings] + [queue for one in workers for queue in one.worker.queues]
    return replace(
        seen,
        queues=_names(depths, named),
        settings=settings,
        workers=workers,
        keeper=next((one for one in sessions if one.is_keeper), None),
        limits=await _limits(store),
        schedules=await _schedules(store, seen.at),
    )


def _names(depths: Sequence[Depth], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*others, *(depth.queue for depth in depths)}))


async def _limits(store: Store) -> dict[str, float]:
    limits = await all_records(store, Limit)
    usages: dict[str, list[Usage]] = defaultdict(list)
    page: Page | None = Page(limit=MAX_PAGE) if limits else None
    looked = 0
    while page is not None and looked < MAX_USAGES:
        found = await store.records(Usage, page)
        for usage in found.items:
            usages[usage.limit].append(usage)
        looked += len(found.items)
        page = None if found.cursor is None else replace(page, cursor=found.cursor)
    untouched = Usage(name="", limit="", value="", running=0)
    return {limit.name: max(map(limit.used, usages[limit.name] or [untouched])) for limit in limits}


async def _schedules(store: Store, now: datetime) -> dict[str, float]:
    schedules = await all_records(store, Schedule)
    ticks = {tick.name: tick for tick in await all_records(store, Tick)} if schedules else {}
    lags = {}
    for schedule in schedules:
        try:
            lag = overdue(schedule, ticks.get(schedule.name), now)
        except InvalidOption:  # a rule that cannot be read; the keeper says so
            continue
        lags[schedule.name] = lag.total_seconds()
    return lags
