"""History: what happened in a period, step by step."""

from msgspec import Struct

from .._policy.history.points import History, HistoryPoint, Quantiles
from .fields import Instant, build_document


class QuantilesDocument(Struct, kw_only=True):
    """Seconds that 50, 95 and 99 percent of attempts did not exceed, each to within 9 percent."""

    p50: float
    p95: float
    p99: float


class HistoryPointDocument(Struct, kw_only=True):
    """What happened from `at` on, for `seconds`.

    `retried` and `buried` are failed attempts. `wait` is how long attempts that ended had been due before
    they started, `run` how long they ran; null if there were none. `depth` is the highest number of ready
    tasks that was counted, `oldest` the longest time in seconds that one of them had been due; null if they
    were not counted.
    """

    at: Instant
    seconds: float
    completed: int
    retried: int
    buried: int
    cancelled: int
    expired: int
    wait: QuantilesDocument | None
    run: QuantilesDocument | None
    depth: int | None
    oldest: float | None


class HistoryDocument(Struct, kw_only=True):
    """A period in steps of `resolution` seconds, oldest first; `total` is the whole period."""

    since: Instant
    until: Instant
    resolution: float
    total: HistoryPointDocument
    points: list[HistoryPointDocument]


class HistoryTotalDocument(Struct, kw_only=True):
    """A queue and type: the whole period, and how many tasks completed in each of 24 equal parts of it."""

    queue: str
    type: str
    total: HistoryPointDocument
    completed: list[int]


class HistoryTotalList(Struct, kw_only=True):
    """Every queue and type that there is anything of, sorted by these. `(other)`: those beyond a hundred."""

    since: Instant
    until: Instant
    items: list[HistoryTotalDocument]


def totals_document(history: History) -> HistoryTotalList:
    """Build the document of the totals of a history."""
    items = [
        build_document(HistoryTotalDocument, one, total=point_document(one.total)) for one in history.totals()
    ]
    return HistoryTotalList(since=history.since, until=history.until, items=items)


def history_document(history: History, queue: str | None = None, type: str | None = None) -> HistoryDocument:
    """Build the document of a history, for one queue, one type or all tasks."""
    return HistoryDocument(
        since=history.since,
        until=history.until,
        resolution=history.resolution.length.total_seconds(),
        total=point_document(history.total(queue=queue, type=type)),
        points=[point_document(point) for point in history.points(queue=queue, type=type)],
    )


def point_document(point: HistoryPoint) -> HistoryPointDocument:
    """Build the document of a point."""
    return build_document(HistoryPointDocument, point, wait=_quantiles(point.wait), run=_quantiles(point.run))


def _quantiles(quantiles: Quantiles | None) -> QuantilesDocument | None:
    return None if quantiles is None else build_document(QuantilesDocument, quantiles)
