"""Queues with their settings and counts, and the overview of a store."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from heapq import nsmallest
from typing import Literal, TypeAlias

from msgspec import Struct

from .._model.queue import Fairness, Level, QueueSettings
from .._model.state import State
from .._observe.overview import COUNTED, Depth, Overview, TenantDepth, TenantDepths
from .._policy.order.window_options import format_window
from .._policy.order.windows import closed_until
from .fields import Instant, Seconds, build_document

MAX_QUEUES = 1_000
"""Queues in the document of an overview."""

_MANY = 64
"""Depths of a queue from which its total is kept with the overview."""

StateCounts: TypeAlias = dict[Literal["waiting", "scheduled", "ready", "running", "dead"], int]


class RetentionDocument(Struct, kw_only=True, forbid_unknown_fields=True):
    """Seconds for which ended tasks are kept, by state; null keeps them for ever."""

    completed: Seconds | None
    cancelled: Seconds | None
    dead: Seconds | None


class SettingsDocument(Struct, kw_only=True):
    """Settings of a queue. `retention` null: the keeper's default; `ageing` null: strict priority.

    `windows`: the hours in which tasks start, as "mon-fri 22:00-06:00 Europe/Berlin"; empty: at any time.
    """

    fairness: Fairness
    weights: dict[str, int]
    shares: dict[Level, int]
    ageing: float | None
    retention: RetentionDocument | None
    stripes: int
    windows: list[str]


class QueueDocument(Struct, kw_only=True):
    """A queue. Counts are at most a few seconds old, and estimates unless `exact`.

    `closed_until` is when the queue opens next, null while its windows let tasks start.
    `oldest_ready` is the age in seconds of the ready task that has been due longest, 0 if none is ready. For
    keys bound to a tenant or queues, `counts` include only tasks that the key can see; `workers`, their
    `slots` and how many of these are `busy` (with tasks of any queue) are null. For keys bound to a tenant
    `settings` is null too, and so is `declared`: the settings that a program declares in code; it sets them
    again when its declaration changes.
    """

    queue: str
    paused: bool
    closed_until: Instant | None
    counts: StateCounts
    exact: bool
    oldest_ready: float
    workers: int | None
    slots: int | None
    busy: int | None
    settings: SettingsDocument | None
    declared: list[str] | None


class QueueList(Struct, kw_only=True):
    """Queues that have tasks, settings or workers, or that a task type names; `number` is how many match.

    `cursor` leads to the next page, and is null on the last one and if the worst come first.
    """

    items: list[QueueDocument]
    number: int
    cursor: str | None


class UnhandledType(Struct, kw_only=True):
    """A type with `number` pending tasks in a queue whose live workers have no handler for it."""

    queue: str
    type: str
    number: int


class OverviewDocument(Struct, kw_only=True):
    """The store at one moment: `counts` of all its `number` queues, and of each of these.

    Of more than 1,000 queues, `queues` has those with the oldest ready tasks; `GET /queues` has all.
    `unserved`: queues that no live worker serves although tasks of theirs are due; 1,000 at most, as of
    `unhandled`. For keys bound to a tenant or queues, all behind `queues` is null.
    """

    at: Instant
    counts: StateCounts
    exact: bool
    number: int
    queues: list[QueueDocument]
    workers: int | None
    slots: int | None
    busy: int | None
    keeper: bool | None
    unserved: list[str] | None
    unhandled: list[UnhandledType] | None


class QueueTypeDocument(Struct, kw_only=True):
    """Tasks of one type in a queue. `handled`: a live worker of the queue has a handler for it.

    It is null if no worker serves the queue, and for keys bound to a tenant or queues.
    """

    type: str
    counts: StateCounts
    exact: bool
    oldest_ready: float
    handled: bool | None


class QueueTypes(Struct, kw_only=True):
    """Types of the tasks in a queue; `number` is how many match.

    `cursor` leads to the next page, and is null on the last one and if the worst come first.
    """

    items: list[QueueTypeDocument]
    number: int
    cursor: str | None


class QueueTenantDocument(Struct, kw_only=True):
    """Tasks of one tenant in a queue; the tenant "" has those without one.

    `weight`: its turns in each round, null unless the queue is `round_robin`.
    """

    tenant: str
    counts: StateCounts
    exact: bool
    oldest_ready: float
    weight: int | None


class QueueTenants(Struct, kw_only=True):
    """The tenants with most tasks that are ready or running; `number` is how many tenants have open tasks."""

    items: list[QueueTenantDocument]
    number: int


def settings_document(settings: QueueSettings) -> SettingsDocument:
    """Build the document of a queue's settings."""
    kept = settings.retention
    retention = None if kept is None else build_document(RetentionDocument, kept)
    windows = [format_window(window) for window in settings.windows]
    return build_document(SettingsDocument, settings, settings.ordering, retention=retention, windows=windows)


class QueueOrder(StrEnum):
    """By name, or the worst first."""

    NAME = "name"
    READY = "ready"
    OLDEST = "oldest"
    DEAD = "dead"


class QueueSearch(Struct, frozen=True, kw_only=True):
    """Which queues, or types of a queue, to list: those whose name contains `name`, after `cursor`."""

    name: str = ""
    order: QueueOrder = QueueOrder.NAME
    limit: int = 100
    cursor: str = ""


class _Totals(Struct, frozen=True, kw_only=True):
    """The tasks of a queue in total, as QueueDocument has them."""

    counts: StateCounts
    exact: bool
    oldest_ready: float


class QueueView(Struct, frozen=True, kw_only=True):
    """What can be seen of the queues of an overview; with settings as they are now.

    Queues that have settings but nothing else are included only `with_settings`.
    """

    overview: Overview
    settings: Mapping[str, QueueSettings]
    with_workers: bool = True
    with_settings: bool = True

    def names(self) -> Sequence[str]:
        """Return the names of all queues, sorted."""
        known = self.overview.by_queue
        others = [name for name in self.settings if name not in known] if self.with_settings else []
        return sorted((*known, *others)) if others else self.overview.queues

    def has(self, name: str) -> bool:
        """Whether there is a queue of this name."""
        return name in self.overview.by_queue or (self.with_settings and name in self.settings)

    def document(self, name: str) -> QueueDocument:
        """Build the document of a queue."""
        seen, own = self.overview, self.settings.get(name)
        total, capacity = self._total(name), seen.capacity(name)
        settings = settings_document(own or QueueSettings(name=name)) if self.with_settings else None
        return QueueDocument(
            queue=name,
            paused=own is not None and own.paused,
            closed_until=closed_until(own, seen.at),
            counts=total.counts.copy(),
            exact=total.exact,
            oldest_ready=total.oldest_ready,
            workers=capacity.workers if self.with_workers else None,
            slots=capacity.slots if self.with_workers else None,
            busy=capacity.busy if self.with_workers else None,
            settings=settings,
            declared=[*seen.declared.get(name, ())] if self.with_settings else None,
        )

    def search(self, wanted: QueueSearch) -> QueueList:
        """Build the documents of a page of queues."""
        chosen, number, cursor = _page(self.names(), wanted, partial(self._urgency, wanted.order))
        return QueueList(items=[self.document(name) for name in chosen], number=number, cursor=cursor)

    def overview_document(self) -> OverviewDocument:
        """Build the document of the overview."""
        seen, names = self.overview, self.names()
        number = len(names)
        if number > MAX_QUEUES:
            names = sorted(nsmallest(MAX_QUEUES, names, partial(self._urgency, QueueOrder.OLDEST)))
        return OverviewDocument(
            at=seen.at,
            counts=_counts(seen.depths),
            exact=all(depth.exact for depth in seen.depths),
            number=number,
            queues=[self.document(name) for name in names],
            workers=len(seen.workers) if self.with_workers else None,
            slots=seen.slots if self.with_workers else None,
            busy=seen.busy if self.with_workers else None,
            keeper=seen.keeper is not None if self.with_workers else None,
            unserved=sorted(seen.unserved())[:MAX_QUEUES] if self.with_workers else None,
            unhandled=unhandled_types(seen)[:MAX_QUEUES] if self.with_workers else None,
        )

    def _urgency(self, order: QueueOrder, name: str) -> tuple[float, str]:
        total = self._total(name)
        return _badness(order, total.counts, total.oldest_ready), name

    def _total(self, name: str) -> _Totals:
        """Add up the tasks of a queue; with many types, once for all that ask."""
        seen = self.overview
        depths, made = seen.by_queue.get(name, ()), seen.documents.get(("total", name))
        if made is not None:
            total: _Totals = made
            return total
        total = _Totals(
            counts=_counts(depths),
            exact=all(depth.exact for depth in depths),
            oldest_ready=_oldest_ready(depths, seen.at),
        )
        if len(depths) > _MANY:
            seen.documents["total", name] = total
        return total


class QueueTypeView(Struct, frozen=True, kw_only=True):
    """What can be seen of the types of a queue in an overview."""

    overview: Overview
    queue: str
    with_workers: bool = True

    def search(self, wanted: QueueSearch) -> QueueTypes:
        """Build the documents of a page of types."""
        chosen, number, cursor = _page(self._names(wanted.order), wanted)
        is_served = self.with_workers and self.overview.live.serves(self.queue)
        items = [self._document(name, is_served=is_served) for name in chosen]
        return QueueTypes(items=items, number=number, cursor=cursor)

    def _document(self, name: str, *, is_served: bool) -> QueueTypeDocument:
        depths = self._depths()[name]
        return QueueTypeDocument(
            type=name,
            counts=_counts(depths),
            exact=all(depth.exact for depth in depths),
            oldest_ready=_oldest_ready(depths, self.overview.at),
            handled=self.overview.live.handles(self.queue, name) if is_served else None,
        )

    def _depths(self) -> Mapping[str, Sequence[Depth]]:
        """Return the depths of each type; made once for all that ask."""
        made: dict[str, list[Depth]] | None = self.overview.documents.get(("types", self.queue))
        if made is None:
            made = {}
            for depth in self.overview.by_queue.get(self.queue, ()):
                made.setdefault(depth.type, []).append(depth)
            self.overview.documents["types", self.queue] = made
        return made

    def _names(self, order: QueueOrder) -> Sequence[str]:
        """Return the names of all types in this order; made once for all that ask."""
        made: list[str] | None = self.overview.documents.get(("types", self.queue, order))
        if made is None:
            made = sorted(self._depths(), key=partial(self._urgency, order))
            self.overview.documents["types", self.queue, order] = made
        return made

    def _urgency(self, order: QueueOrder, name: str) -> tuple[float, str]:
        if order is QueueOrder.NAME:
            return 0, name
        depths = self._depths()[name]
        return _badness(order, _counts(depths), _oldest_ready(depths, self.overview.at)), name


def _page(
    names: Sequence[str], wanted: QueueSearch, urgency: Callable[[str], tuple[float, str]] | None = None
) -> tuple[Sequence[str], int, str | None]:
    """Return the names of a page, the number of all that match, and the cursor of the next page.

    In another order than by name they are sorted by `urgency`, or have this order already if it is None.
    """
    if text := wanted.name.casefold():
        names = [name for name in names if text in name.casefold()]
    number = len(names)
    if wanted.order is not QueueOrder.NAME:
        worst = names[: wanted.limit] if urgency is None else nsmallest(wanted.limit, names, urgency)
        return worst, number, None
    start = bisect_right(names, wanted.cursor) if wanted.cursor else 0
    chosen = names[start : start + wanted.limit]
    return chosen, number, chosen[-1] if start + wanted.limit < number else None


def _badness(order: QueueOrder, counts: StateCounts, oldest_ready: float) -> float:
    """Return a number that is smaller the worse these counts are in an order."""
    match order:
        case QueueOrder.NAME:
            return 0
        case QueueOrder.READY:
            return -counts["ready"]
        case QueueOrder.OLDEST:
            return -oldest_ready
        case QueueOrder.DEAD:
            return -counts["dead"]


def queue_documents(overview: Overview, settings: Iterable[QueueSettings]) -> list[QueueDocument]:
    """Build the documents of all queues, by name."""
    view = QueueView(overview=overview, settings={one.name: one for one in settings})
    return [view.document(name) for name in view.names()]


def queue_tenants(tenants: TenantDepths, settings: QueueSettings | None, limit: int) -> QueueTenants:
    """Build the document of the tenants of a queue; only the `limit` with most tasks ready or running."""
    by_tenant: dict[str, list[TenantDepth]] = defaultdict(list)
    for depth in tenants.depths:
        by_tenant[depth.tenant].append(depth)
    weights = None if settings is None or settings.fairness is not Fairness.ROUND_ROBIN else settings.weights
    items = [
        QueueTenantDocument(
            tenant=tenant,
            counts=_counts(found),
            exact=all(depth.exact for depth in found),
            oldest_ready=_oldest_ready(found, tenants.at),
            weight=None if weights is None else weights.get(tenant, 1),
        )
        for tenant, found in by_tenant.items()
    ]
    items.sort(key=lambda one: (-one.counts["ready"] - one.counts["running"], one.tenant))
    return QueueTenants(items=items[:limit], number=len(items))


def _counts(depths: Iterable[Depth | TenantDepth]) -> StateCounts:
    counts = dict.fromkeys(map(str, COUNTED), 0)
    for depth in depths:
        counts[str(depth.state)] += depth.number
    return counts  # type: ignore[return-value]  # the states of COUNTED


def _oldest_ready(depths: Iterable[Depth | TenantDepth], now: datetime) -> float:
    due = [depth.oldest_at for depth in depths if depth.state is State.READY and depth.oldest_at is not None]
    return max((now - min(due)).total_seconds(), 0.0) if due else 0.0


def unhandled_types(overview: Overview) -> list[UnhandledType]:
    """Build the documents of the types that no live worker of their queue handles."""
    return [
        UnhandledType(queue=queue, type=name, number=number)
        for (queue, name), number in sorted(overview.unhandled().items())
    ]
