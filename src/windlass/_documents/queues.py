"""Queues with their settings and counts, and the overview of a store."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from .._model.queue import Fairness, Level, QueueSettings
from .._observe.overview import COUNTED, Overview
from .._policy.order.window_options import format_window
from .._policy.order.windows import closed_until
from .fields import Instant, Seconds, build_document


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
    keys bound to a tenant or queues, `counts` include only tasks that the key can see and `workers` is null;
    for keys bound to a tenant `settings` is null too.
    """

    queue: str
    paused: bool
    closed_until: Instant | None
    counts: dict[Literal["waiting", "scheduled", "ready", "running", "dead"], int]
    exact: bool
    oldest_ready: float
    workers: int | None
    settings: SettingsDocument | None


class QueueList(Struct, kw_only=True):
    """Every queue that has tasks, settings or workers, or that a task type names; by name."""

    items: list[QueueDocument]


class OverviewDocument(Struct, kw_only=True):
    """The store at one moment. For keys bound to a tenant or queues, all but `at` and `queues` is null."""

    at: Instant
    queues: list[QueueDocument]
    workers: int | None
    slots: int | None
    busy: int | None
    keeper: bool | None


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
    counts = {name: dict.fromkeys(map(str, COUNTED), 0) for name in names}
    estimated = set()
    for depth in overview.depths:
        counts[depth.queue][str(depth.state)] += depth.number
        if not depth.exact:
            estimated.add(depth.queue)
    ages, serving = overview.oldest_ready(), overview.serving()
    return [
        QueueDocument(
            queue=name,
            paused=name in known and known[name].paused,
            closed_until=closed_until(known.get(name), overview.at),
            counts=counts[name],  # type: ignore[arg-type]  # the states of COUNTED
            exact=name not in estimated,
            oldest_ready=ages.get(name, 0.0),
            workers=serving.get(name, 0) if with_workers else None,
            settings=settings_document(known.get(name) or QueueSettings(name=name))
            if with_settings
            else None,
        )
        for name in sorted(counts)
    ]


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
    )
