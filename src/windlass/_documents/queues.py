"""Queues with their settings and counts, and the overview of a store."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from .._model.queue import Fairness, Level, QueueSettings
from .._model.state import State
from .._observe.overview import COUNTED, Depth, Overview, TenantDepth, TenantDepths
from .._policy.order.window_options import format_window
from .._policy.order.windows import closed_until
from .fields import Instant, Seconds, build_document

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
    """Every queue that has tasks, settings or workers, or that a task type names; by name."""

    items: list[QueueDocument]


class UnhandledType(Struct, kw_only=True):
    """A type with `number` pending tasks in a queue whose live workers have no handler for it."""

    queue: str
    type: str
    number: int


class OverviewDocument(Struct, kw_only=True):
    """The store at one moment. For keys bound to a tenant or queues, all but `at` and `queues` is null.

    `unserved`: queues that no live worker serves although tasks of theirs are due.
    """

    at: Instant
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
    """The types of the tasks in a queue, by name."""

    items: list[QueueTypeDocument]


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


def queue_documents(
    overview: Overview,
    settings: Iterable[QueueSettings],
    *,
    with_workers: bool = True,
    with_settings: bool = True,
) -> list[QueueDocument]:
    """Build the documents of all queues in the overview, by name.

    Queues that have settings but nothing else are included only `with_settings`.
    """
    known = {one.name: one for one in settings}
    names = {*overview.queues, *(known if with_settings else ())}
    depths: dict[str, list[Depth]] = {name: [] for name in names}
    for depth in overview.depths:
        depths[depth.queue].append(depth)
    ages, serving, slots = overview.oldest_ready(), overview.serving(), overview.slots_for()
    return [
        QueueDocument(
            queue=name,
            paused=name in known and known[name].paused,
            closed_until=closed_until(known.get(name), overview.at),
            counts=_counts(depths[name]),
            exact=all(depth.exact for depth in depths[name]),
            oldest_ready=ages.get(name, 0.0),
            workers=serving.get(name, 0) if with_workers else None,
            slots=slots.get(name, (0, 0))[0] if with_workers else None,
            busy=slots.get(name, (0, 0))[1] if with_workers else None,
            settings=settings_document(known.get(name) or QueueSettings(name=name))
            if with_settings
            else None,
            declared=[*overview.declared.get(name, ())] if with_settings else None,
        )
        for name in sorted(depths)
    ]


def queue_types(overview: Overview, queue: str, *, with_workers: bool = True) -> QueueTypes:
    """Build the document of the types of the tasks in a queue."""
    by_type: dict[str, list[Depth]] = defaultdict(list)
    for depth in overview.depths:
        if depth.queue == queue:
            by_type[depth.type].append(depth)
    serving = [one.worker for one in overview.workers if one.worker.serves(queue)] if with_workers else []
    return QueueTypes(
        items=[
            QueueTypeDocument(
                type=name,
                counts=_counts(depths),
                exact=all(depth.exact for depth in depths),
                oldest_ready=_oldest_ready(depths, overview.at),
                handled=any(worker.handles(name) for worker in serving) if serving else None,
            )
            for name, depths in sorted(by_type.items())
        ]
    )


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


def overview_document(
    overview: Overview, *, with_workers: bool = True, with_settings: bool = True
) -> OverviewDocument:
    """Build the document of an overview."""
    return OverviewDocument(
        at=overview.at,
        queues=queue_documents(
            overview, overview.settings, with_workers=with_workers, with_settings=with_settings
        ),
        workers=len(overview.workers) if with_workers else None,
        slots=overview.slots if with_workers else None,
        busy=overview.busy if with_workers else None,
        keeper=overview.keeper is not None if with_workers else None,
        unserved=sorted(overview.unserved()) if with_workers else None,
        unhandled=unhandled_types(overview) if with_workers else None,
    )


def unhandled_types(overview: Overview) -> list[UnhandledType]:
    """Build the documents of the types that no live worker of their queue handles."""
    return [
        UnhandledType(queue=queue, type=name, number=number)
        for (queue, name), number in sorted(overview.unhandled().items())
    ]
