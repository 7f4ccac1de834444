"""HistoryReader: reads the history of a period, and from then on only what is new."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic

from msgspec import Struct

from .._model.filter import Page
from .._model.record import HistoryBucket
from .._policy.history.buckets import Resolution, bucket_name, resolution_for
from .._policy.history.points import History, parse_period
from .._store.protocol import Store

MERGED_AFTER = timedelta(seconds=6)
"""The time after the end of a bucket until a keeper has made it. Before that it would seem empty."""

_LATE = timedelta(minutes=2)  # after which few parts of a bucket arrive
_FORGET_AFTER = 600.0  # seconds: then all is read again, with the parts that came later still
_PAGE = 500


class _Known(Struct, frozen=True):
    """The buckets that were read, by name."""

    since: datetime
    until: datetime
    buckets: Mapping[str, HistoryBucket]
    read_at: float  # all of them, by `monotonic`


class HistoryReader:
    """Reads history. It may be called every second: buckets that no longer change are read once.

    Safe to use from several threads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[Resolution, _Known] = {}

    async def read(self, period: timedelta | float | str) -> History:
        """Return the history of this period, up to the last bucket that is over. Raises InvalidOption."""
        length = parse_period(period)
        await self._store.open()
        resolution = resolution_for(length)
        until = resolution.floor(await self._store.now() - MERGED_AFTER)
        since = resolution.floor(until - length)
        known = self._known[resolution] = await self._updated(resolution, since, until)
        first = bucket_name(resolution, since)
        buckets = tuple(one for name, one in known.buckets.items() if name >= first)
        return History(resolution=resolution, since=since, until=until, buckets=buckets)

    async def _updated(self, resolution: Resolution, since: datetime, until: datetime) -> _Known:
        known = self._known.get(resolution)
        if (
            known is None
            or not known.since <= since
            or until < known.until  # the clock was set back
            or monotonic() > known.read_at + _FORGET_AFTER
        ):
            known = _Known(since, since, {}, monotonic())
        oldest = max(known.since, until - resolution.kept)
        again = max(resolution.floor(known.until - _LATE) - resolution.length, oldest)
        first, changing = bucket_name(resolution, oldest), bucket_name(resolution, again)
        buckets = {name: one for name, one in known.buckets.items() if first <= name < changing}
        buckets |= {one.name: one for one in await read_buckets(self._store, resolution, again, until)}
        return _Known(oldest, until, buckets, known.read_at)


async def read_buckets(
    store: Store, resolution: Resolution, since: datetime, until: datetime, limit: int | None = None
) -> Sequence[HistoryBucket]:
    """Return the stored buckets that start from `since` on and before `until`, at most `limit` of them."""
    first, end = bucket_name(resolution, since), bucket_name(resolution, until)
    most = min(max((until - since) // resolution.length, 1), limit or _PAGE, _PAGE)
    page = Page(cursor=first[:-1], limit=most)  # the cursor is what sorts just before the first
    buckets: list[HistoryBucket] = []
    while True:
        found = await store.records(HistoryBucket, page)
        buckets += (one for one in found.items if first <= one.name < end)
        if found.cursor is None or found.cursor >= end or len(buckets) == limit:
            return buckets
        page = Page(cursor=found.cursor, limit=most)
