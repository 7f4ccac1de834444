"""Points of history: what happened in each bucket of a period, to all tasks or those of a queue or type."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from ..._model.record import Histogram, HistoryBucket, HistorySeries
from ...errors import InvalidOption
from ..input.options import parse_duration
from .buckets import HOUR, Resolution, bucket_name, start_of
from .histogram import added, quantiles


class Quantiles(Struct, frozen=True, gc=False):
    """Seconds that 50, 95 and 99 percent of attempts did not exceed, each to within 9 percent."""

    p50: float
    p95: float
    p99: float


class HistoryPoint(Struct, frozen=True, gc=False, kw_only=True):
    """What happened from `at` on, for `seconds`.

    `wait` and `run` are how long attempts that ended had waited, once due, and ran; None if there were none.
    `depth` is the highest number of ready tasks that was counted, and `oldest` the longest time in seconds
    that one of them had been due; None if they were not counted.
    """

    at: datetime
    seconds: float
    completed: int = 0
    retried: int = 0
    buried: int = 0
    cancelled: int = 0
    expired: int = 0
    wait: Quantiles | None = None
    run: Quantiles | None = None
    depth: int | None = None
    oldest: float | None = None

    @property
    def failed(self) -> int:
        """Failed attempts: those that are retried, and those after which the task is dead."""
        return self.retried + self.buried


class History(Struct, frozen=True, kw_only=True):
    """The buckets of a period, oldest first, without those that nothing is known of."""

    resolution: Resolution
    since: datetime
    until: datetime
    buckets: tuple[HistoryBucket, ...] = ()

    def points(self, *, queue: str | None = None, type: str | None = None) -> tuple[HistoryPoint, ...]:
        """Return a point for each bucket of the period, for one queue, one type or all tasks."""
        known = {one.name: one for one in self.buckets}
        length, found, start = self.resolution.length, [], self.since
        while start < self.until:
            bucket = known.get(bucket_name(self.resolution, start))
            found.append(_point(start, length, [] if bucket is None else [bucket], queue, type))
            start += length
        return tuple(found)

    def total(self, *, queue: str | None = None, type: str | None = None) -> HistoryPoint:
        """Return the whole period as one point."""
        return _point(self.since, self.until - self.since, self.buckets, queue, type)

    def only(self, queues: Collection[str]) -> "History":
        """Return the history of these queues."""
        buckets = (
            replace(bucket, series=tuple(one for one in bucket.series if one.queue in queues))
            for bucket in self.buckets
        )
        return replace(self, buckets=tuple(buckets))

    def names(self) -> tuple[tuple[str, str], ...]:
        """Return the queues and types that there is anything of, sorted."""
        return tuple(sorted({(one.queue, one.type) for bucket in self.buckets for one in bucket.series}))

    def totals(self, parts: int = 24) -> tuple["HistoryTotal", ...]:
        """Return the whole period for each queue and type that there is anything of, sorted by these."""
        length = self.until - self.since
        found: dict[tuple[str, str], list[tuple[HistoryBucket, HistorySeries]]] = defaultdict(list)
        for bucket in self.buckets:
            for one in bucket.series:
                found[one.queue, one.type].append((bucket, one))
        totals = []
        for (queue, type_name), pairs in sorted(found.items()):
            completed = [0] * parts
            for bucket, one in pairs:
                start = start_of(bucket.name) or self.since
                completed[int((start - self.since) / length * parts)] += one.completed
            measured = [[one] for bucket, one in pairs if bucket.measured]
            point = _sum(self.since, length, [one for _, one in pairs], measured)
            totals.append(HistoryTotal(queue=queue, type=type_name, total=point, completed=tuple(completed)))
        return tuple(totals)


class HistoryTotal(Struct, frozen=True, kw_only=True):
    """The whole period for a queue and type; `completed` is how many did in each of its equal parts."""

    queue: str
    type: str
    total: HistoryPoint
    completed: tuple[int, ...]


def parse_period(period: timedelta | float | str) -> timedelta:
    """Return the period of a history to read. Raises InvalidOption."""
    parsed = parse_duration(period, "period")
    if not timedelta(0) < parsed <= HOUR.kept:
        raise InvalidOption(f"period must be greater than 0 and at most {HOUR.kept.days}d, got {period!r}")
    return parsed


def _point(
    at: datetime,
    length: timedelta,
    buckets: Sequence[HistoryBucket],
    queue: str | None,
    type_name: str | None,
) -> HistoryPoint:
    """Return the sum of buckets as one point; the depth is that of the bucket where it was highest."""
    wanted = [
        [one for one in bucket.series if queue in (None, one.queue) and type_name in (None, one.type)]
        for bucket in buckets
    ]
    measured = [some for some, bucket in zip(wanted, buckets, strict=True) if bucket.measured]
    return _sum(at, length, [one for some in wanted for one in some], measured)


def _sum(
    at: datetime,
    length: timedelta,
    series: Sequence[HistorySeries],
    measured: Sequence[Sequence[HistorySeries]],
) -> HistoryPoint:
    """Return the sum of series; `measured` are those of each bucket whose depth was counted."""
    return HistoryPoint(
        at=at,
        seconds=length.total_seconds(),
        completed=sum(one.completed for one in series),
        retried=sum(one.retried for one in series),
        buried=sum(one.buried for one in series),
        cancelled=sum(one.cancelled for one in series),
        expired=sum(one.expired for one in series),
        wait=_quantiles(one.wait for one in series),
        run=_quantiles(one.run for one in series),
        depth=max((sum(one.depth for one in some) for some in measured), default=None),
        oldest=max((max((one.oldest for one in some), default=0.0) for some in measured), default=None),
    )


def _quantiles(histograms: Iterable[Histogram]) -> Quantiles | None:
    found = quantiles(added(histograms), (0.5, 0.95, 0.99))
    return Quantiles(*found) if found else None
