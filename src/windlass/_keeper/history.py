"""The chore of history: merge what processes counted, roll it up, and remove what is past its time.

A part is removed only after its bucket, minute and hour have it, and the bucket remembers which parts it has.
Minutes and hours are always made anew from all that is in them. So whatever a keeper leaves half done, the
next one does again, and nothing is counted twice or lost.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic

from .._model.filter import Count, Dimension, Filter, Page
from .._model.record import HistoryBucket
from .._model.state import State
from .._observe.history_reader import read_buckets
from .._policy.history.buckets import (
    HOUR,
    MINUTE,
    PART,
    TEN_SECONDS,
    Resolution,
    bucket_name,
    rolled_up,
    start_of,
    with_depths,
    with_parts,
)
from .._store.protocol import Store
from ..errors import Conflict

_AFTER = timedelta(seconds=3)  # the end of a bucket, for its parts to arrive
_AGAIN_AFTER = 0.5  # seconds, if there is more to do
_MAX_PARTS = 500  # to read at a time
_MAX_BUCKETS = 100  # to roll up or remove at a time, so that history does not hold up the other chores
_COUNT_SHARE = 20  # counting takes at most this part of the store's time
_AHEAD = timedelta(days=1)  # what is later than this was counted before the clock was set back
_READY = Filter(states=(State.READY,))
_ROLL_UPS = ((TEN_SECONDS, MINUTE), (MINUTE, HOUR))


class HistoryChore:
    """Does the chore. What it remembers from turn to turn only saves reading it again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count_at = 0.0  # by `monotonic`
        self._rolled: dict[Resolution, datetime] = {}  # up to when all is rolled up into this resolution
        self._has_more = False

    async def turn(self) -> float:
        """Do what is due; return the seconds until more is."""
        self._has_more = False
        now = await self._store.now()
        for source, target in _ROLL_UPS:
            if self._rolled.get(target, now + _AHEAD) > now:
                self._rolled[target] = await self._rolled_until(source, target, now)
        try:
            until = await self._merge(now)
            for source, target in _ROLL_UPS:
                await self._roll_up(source, target, until)
                until = self._rolled[target]
        except Conflict:  # a former leader, which does not know yet, has changed the same bucket
            self._has_more = True
        await self._remove_old(now)
        next_at = TEN_SECONDS.floor(now - _AFTER) + TEN_SECONDS.length + _AFTER
        return _AGAIN_AFTER if self._has_more else (next_at - now).total_seconds()

    # -- merge ---------------------------------------------------------------------------------------

    async def _merge(self, now: datetime) -> datetime:
        """Merge all parts of buckets that are over, and add depths to the last of these buckets.

        Returns up to when there are no others.
        """
        last = TEN_SECONDS.floor(now - _AFTER) - TEN_SECONDS.length
        parts: dict[datetime, list[HistoryBucket]] = {last: []}
        found = await self._store.records(HistoryBucket, Page(cursor=f"{PART}/", limit=_MAX_PARTS))
        for part in found.items:
            start = start_of(part.name)
            if start is None or not now - TEN_SECONDS.kept < start < now + _AHEAD:
                await self._store.remove(HistoryBucket, part.name)
            elif start <= last:
                parts.setdefault(TEN_SECONDS.floor(start), []).append(part)
        for start, some in sorted(parts.items()):
            await self._merge_into(start, some, now, measure=start == last)
        merged = [start for start, some in parts.items() if some]
        if found.cursor is None or not merged:
            return now - _AFTER
        self._has_more = True  # there are more, also of the last one
        return max(merged)

    async def _merge_into(
        self, start: datetime, parts: Sequence[HistoryBucket], now: datetime, *, measure: bool
    ) -> None:
        name = bucket_name(TEN_SECONDS, start)
        before = await self._find(name)
        bucket = with_parts(before or HistoryBucket(name=name), parts)
        if measure and not bucket.measured and monotonic() >= self._count_at:
            bucket = with_depths(bucket, await self._count(), now)
        if bucket != before and (bucket.parts or bucket.measured):
            await self._store.put(bucket, None, before)
        if parts:
            for source, target in _ROLL_UPS:
                if target.floor(start) < self._rolled[target]:  # a part that came late
                    await self._make(source, target, target.floor(start))
        for part in parts:
            await self._store.remove(HistoryBucket, part.name)

    async def _count(self) -> Sequence[Count]:
        """Count ready tasks by queue and type; the next time not before a multiple of what this took."""
        began = monotonic()
        counts = await self._store.count(_READY, (Dimension.QUEUE, Dimension.TYPE))
        self._count_at = monotonic() + (monotonic() - began) * (_COUNT_SHARE - 1)
        return counts

    # -- roll up -------------------------------------------------------------------------------------

    async def _rolled_until(self, source: Resolution, target: Resolution, now: datetime) -> datetime:
        """Return the end of the last bucket that is rolled up, or the start of the first that could be."""
        page = Page(cursor=bucket_name(target, target.floor(now)), limit=1, newest_first=True)
        newest = await self._start(target, page)
        if newest is not None:
            return newest + target.length
        oldest = await self._start(source, Page(cursor=source.prefix, limit=1))
        return target.floor(min(oldest or now, now))

    async def _roll_up(self, source: Resolution, target: Resolution, until: datetime) -> None:
        """Make the buckets that are over since the last time."""
        until = target.floor(until)
        if self._rolled[target] < until:
            found = await read_buckets(self._store, source, self._rolled[target], until, _MAX_BUCKETS)
            starts = sorted({target.floor(start) for one in found if (start := start_of(one.name))})
            if len(found) == _MAX_BUCKETS:  # there may be more, also of the last one
                until = starts.pop()
                self._has_more = True
            for start in starts:
                await self._make(source, target, start)
            self._rolled[target] = until

    async def _make(self, source: Resolution, target: Resolution, start: datetime) -> None:
        """Make a bucket from all that are in it. Raises Conflict if another keeper does it, too."""
        before = await self._find(bucket_name(target, start))
        found = await read_buckets(self._store, source, start, start + target.length)
        bucket = rolled_up(target, start, found)
        if bucket != before:
            await self._store.put(bucket, None, before)

    # -- remove --------------------------------------------------------------------------------------

    async def _remove_old(self, now: datetime) -> None:
        """Remove what is past its time, once it is rolled up, and what is far ahead of it."""
        for resolution, target in ((TEN_SECONDS, MINUTE), (MINUTE, HOUR), (HOUR, None)):
            oldest = now - resolution.kept
            if target is not None:
                oldest = min(target.floor(oldest), self._rolled[target])
            for _ in range(_MAX_BUCKETS):
                start = await self._start(resolution, Page(cursor=resolution.prefix, limit=1))
                if start is None or start >= oldest:
                    break
                await self._store.remove(HistoryBucket, bucket_name(resolution, start))
            for _ in range(_MAX_BUCKETS):
                page = Page(cursor=resolution.end, limit=1, newest_first=True)
                start = await self._start(resolution, page)
                if start is None or start < now + _AHEAD:
                    break
                await self._store.remove(HistoryBucket, bucket_name(resolution, start))

    # -- read ----------------------------------------------------------------------------------------

    async def _find(self, name: str) -> HistoryBucket | None:
        page = Page(cursor=name[:-1], limit=1)  # what sorts just before it
        found = (await self._store.records(HistoryBucket, page)).items
        return found[0] if found and found[0].name == name else None

    async def _start(self, resolution: Resolution, page: Page) -> datetime | None:
        """Return the start of the only bucket of a page, if it has this resolution."""
        found = (await self._store.records(HistoryBucket, page)).items
        return start_of(found[0].name) if found and found[0].name.startswith(resolution.prefix) else None
