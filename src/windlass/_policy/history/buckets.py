"""Buckets of history: their names, how they are merged and rolled up, and how large they may become."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from math import inf

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..._model.filter import Count
from ..._model.record import HistoryBucket, HistorySeries
from ...errors import InvalidOption
from ..input.options import checked_text
from ..input.quote import quoted
from .histogram import CELLS, added

OTHER = "(other)"
"""The type, and if need be the queue, of tasks that have no series of their own."""

MAX_SERIES = 100
MAX_BYTES = 16_384
"""Size of the series of one bucket, as JSON."""

MAX_POINTS = 1_500
MAX_PARTS = 10_000
PART = "part"
_MAX_ID = 40
_MAX_NAME = 128


class Resolution(Struct, frozen=True, gc=False):
    """A length of buckets, and how long they are kept."""

    name: str
    length: timedelta
    kept: timedelta

    @property
    def prefix(self) -> str:
        """What the names of its buckets begin with."""
        return f"{self.name}/"

    @property
    def end(self) -> str:
        """What sorts behind the names of its buckets, and before all other names that do."""
        return f"{self.name}0"

    def floor(self, at: datetime) -> datetime:
        """Return the start of the bucket that an instant is in."""
        return at - (at - _EPOCH) % self.length


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEN_SECONDS = Resolution("10s", timedelta(seconds=10), timedelta(days=1))
MINUTE = Resolution("1m", timedelta(minutes=1), timedelta(days=7))
HOUR = Resolution("1h", timedelta(hours=1), timedelta(days=91))
RESOLUTIONS = (TEN_SECONDS, MINUTE, HOUR)

MAX_STORED_BYTES = sum(one.kept // one.length for one in RESOLUTIONS) * MAX_BYTES
"""What all buckets together have at most, as JSON."""


def resolution_for(period: timedelta) -> Resolution:
    """Return the finest resolution that is kept for so long and has at most `MAX_POINTS` buckets in it."""
    for one in RESOLUTIONS[:-1]:
        if period <= one.kept and period / one.length <= MAX_POINTS:
            return one
    return HOUR


# -- names -------------------------------------------------------------------------------------------


def bucket_name(resolution: Resolution, start: datetime) -> str:
    """Return the name of the bucket that starts then."""
    return f"{resolution.prefix}{_stamp(start)}"


def part_name(start: datetime, part_id: str) -> str:
    """Return the name of a part of the ten seconds that start then."""
    return f"{PART}/{_stamp(start)}/{part_id}"


def start_of(name: str) -> datetime | None:
    """Return the start of a bucket or part; None if this is not the name of one."""
    try:
        start = datetime.fromisoformat(name.split("/")[1])
    except (IndexError, ValueError):
        return None
    return start if start.tzinfo is UTC else None


def part_id(name: str) -> str:
    """Return the id of a part."""
    return name.rpartition("/")[2]


def check_bucket(bucket: HistoryBucket) -> None:
    """Raise InvalidOption for a bucket or part that no process makes."""
    start = start_of(bucket.name)
    known = [] if start is None else [bucket_name(one, one.floor(start)) for one in RESOLUTIONS]
    if start is not None and len(part_id(bucket.name)) <= _MAX_ID:
        known.append(part_name(TEN_SECONDS.floor(start), part_id(bucket.name)))
    if bucket.name not in known:
        raise InvalidOption(f"{quoted(bucket.name)} is not the name of a bucket of history")
    if not _fits(bucket.series):
        raise InvalidOption(f"a bucket of history has at most {MAX_SERIES} series and {MAX_BYTES:,} bytes")
    if len(bucket.parts) > MAX_PARTS or any(len(one) > _MAX_ID for one in bucket.parts):
        raise InvalidOption(f"a bucket of history has at most {MAX_PARTS:,} parts, with ids of {_MAX_ID}")
    for one in bucket.series:
        for name in (one.queue, one.type):
            checked_text(name, "the name of a queue or type", _MAX_NAME)
        _check_numbers(one)


def _check_numbers(series: HistorySeries) -> None:
    counts = (series.completed, series.retried, series.buried, series.cancelled, series.expired, series.depth)
    if min(*counts, *series.wait, *series.run) < 0 or not 0 <= series.oldest < inf:
        raise InvalidOption("the numbers of a series of history must be finite and at least 0")
    for durations in (series.wait, series.run):
        if len(durations) % 2 or any(cell >= CELLS for cell in durations[::2]):
            raise InvalidOption("the wait or run of a series of history is not a histogram")


def _stamp(start: datetime) -> str:
    return start.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


# -- contents ----------------------------------------------------------------------------------------


def with_parts(bucket: HistoryBucket, parts: Iterable[HistoryBucket]) -> HistoryBucket:
    """Merge parts into their bucket. Those that it has already change nothing."""
    new = {part_id(one.name): one for one in parts if part_id(one.name) not in bucket.parts}
    if not new:
        return bucket
    series = _merged([bucket.series, *(one.series for one in new.values())])
    return replace(bucket, series=series, parts=(*bucket.parts, *new))


def with_depths(bucket: HistoryBucket, counts: Iterable[Count], now: datetime) -> HistoryBucket:
    """Add the numbers of ready tasks by queue and type, counted now."""
    depths = [
        HistorySeries(
            queue=count.values[0],
            type=count.values[1],
            depth=count.number,
            oldest=_age(count.oldest_at, now),
        )
        for count in counts
        if count.number
    ]
    return replace(bucket, series=_merged([bucket.series, depths]), measured=True)


def rolled_up(resolution: Resolution, start: datetime, buckets: Sequence[HistoryBucket]) -> HistoryBucket:
    """Return the bucket of a longer resolution that has all of these."""
    return HistoryBucket(
        name=bucket_name(resolution, start),
        series=_merged([one.series for one in buckets]),
        measured=any(one.measured for one in buckets),
    )


def bounded(series: Iterable[HistorySeries]) -> tuple[HistorySeries, ...]:
    """Return at most `MAX_SERIES` series of at most `MAX_BYTES`; the least active are summed in OTHER.

    These keep their queue, so that the sum of a queue stays right, unless that leaves too many.
    """
    found = sorted(series, key=_activity, reverse=True)
    room = MAX_SERIES
    while not _fits(found):
        room //= 2
        own = [one for one in found if one.type != OTHER][:room]
        rest = [one for one in found if one not in own]
        by_queue = [replace(one, type=OTHER) for one in rest]
        found = [*own, *_combined(by_queue, sum)]
        if not _fits(found):
            found = [*own, *_combined([replace(one, queue=OTHER) for one in by_queue], sum)]
    return tuple(sorted(found, key=lambda one: (one.queue, one.type)))


def _merged(groups: Iterable[Iterable[HistorySeries]]) -> tuple[HistorySeries, ...]:
    """Add up series of several times or processes. The depth is the highest."""
    return bounded(_combined([one for group in groups for one in group], max))


def _combined(
    series: Iterable[HistorySeries], depth: Callable[[Iterable[int]], int]
) -> Iterator[HistorySeries]:
    """Yield one series for each queue and type; `depth` tells how their depths are combined."""
    groups: defaultdict[tuple[str, str], list[HistorySeries]] = defaultdict(list)
    for one in series:
        groups[one.queue, one.type].append(one)
    for (queue, type_name), group in groups.items():
        yield (
            group[0]
            if len(group) == 1
            else HistorySeries(
                queue=queue,
                type=type_name,
                completed=sum(one.completed for one in group),
                retried=sum(one.retried for one in group),
                buried=sum(one.buried for one in group),
                cancelled=sum(one.cancelled for one in group),
                expired=sum(one.expired for one in group),
                wait=added(one.wait for one in group),
                run=added(one.run for one in group),
                depth=depth(one.depth for one in group),
                oldest=max(one.oldest for one in group),
            )
        )


def _activity(one: HistorySeries) -> int:
    return one.completed + one.retried + one.buried + one.cancelled + one.expired + one.depth


def _fits(series: Sequence[HistorySeries]) -> bool:
    return len(series) <= MAX_SERIES and len(msgspec.json.encode(series)) <= MAX_BYTES


def _age(oldest_at: datetime | None, now: datetime) -> float:
    return 0.0 if oldest_at is None else round(max((now - oldest_at).total_seconds(), 0.0), 3)
