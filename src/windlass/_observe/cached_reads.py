"""Reads of the store that callers share, each at a bounded rate."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from math import inf
from time import monotonic
from typing import Generic, TypeVar, cast

from msgspec import Struct

from .._store.partial_answers import complete_answers, leave_out, partial_answers
from ..errors import StoreUnavailable

K = TypeVar("K")
V = TypeVar("V")

READ_TIMEOUT = timedelta(seconds=8)
"""Time for one read; Prometheus gives up on a scrape after ten seconds."""

MAX_CACHED = 200
_SHARE = 10


class CachedReads(Generic[K, V]):
    """The newest result of `read` for each key. For one event loop.

    Concurrent callers share one read. The next read starts no sooner than `max_age` after the last, nor
    before nine times its duration has passed, so that reading takes at most a tenth of the store's time. A
    failed read counts as one, so that a store in trouble is not read more often.
    """

    def __init__(
        self,
        read: Callable[[K], Awaitable[V]],
        what: str,
        *,
        max_age: timedelta,
        timeout: timedelta = READ_TIMEOUT,
        clock: Callable[[], float] = monotonic,
        is_partial: bool = True,
    ) -> None:
        """`is_partial`: callers that may leave out shards that do not answer get what the others say."""
        self._read = read
        self._is_partial = is_partial
        self._what = what
        self._max_age = max_age.total_seconds()
        self._timeout = timeout.total_seconds()
        self._clock = clock
        self._cached: dict[K, _Cached[V]] = {}

    async def get(self, key: K) -> V:
        """Return what was read for the key. Raises StoreError."""
        cached = self._cached.get(key)
        if cached is None or (cached.read.done() and self._clock() >= cached.fresh_until):
            cached = self._start(key)
        # Shielded: a caller that is cancelled must not cancel the read that others wait for.
        value, missing = await asyncio.shield(cached.read)
        if missing:
            leave_out(missing)
        return value

    def forget(self) -> None:
        """Read again when next asked: what was read may show what has been removed since."""
        self._cached.clear()

    def _start(self, key: K) -> "_Cached[V]":
        self._cached.pop(key, None)
        for oldest in [*self._cached][: max(len(self._cached) + 1 - MAX_CACHED, 0)]:
            del self._cached[oldest]
        read = asyncio.create_task(self._read_in_time(key))
        cached = self._cached[key] = _Cached(read)
        began = self._clock()

        def done(finished: "asyncio.Task[tuple[V, set[str]]]") -> None:
            now = self._clock()
            cached.fresh_until = now + max(self._max_age, (now - began) * (_SHARE - 1))
            if not finished.cancelled():
                finished.exception()  # retrieved, so that asyncio does not log it as never retrieved

        read.add_done_callback(done)
        return cached

    async def _read_in_time(self, key: K) -> tuple[V, set[str]]:
        """Return what was read, and the shards that it lacks."""
        try:
            async with asyncio.timeout(self._timeout):
                if self._is_partial:
                    with partial_answers() as missing:
                        return await self._read(key), missing
                with complete_answers():
                    return await self._read(key), set()
        except TimeoutError:
            raise StoreUnavailable(
                f"timed out after {self._timeout:g} s reading {self._what} from the store"
            ) from None


class RecentRead(Generic[V]):
    """The newest result of one `read`, for callers who each say how recent it must be. For one event loop.

    Concurrent callers share a read. Reads follow each other at a bounded rate, whatever callers ask for.
    """

    def __init__(self, read: Callable[[], Awaitable[V]]) -> None:
        self.read_at = -inf  # when the newest read began
        self._read = read
        self._value: V | None = None
        self._took = 0.0
        self._reading = asyncio.Lock()

    async def since(self, instant: float, *, pause: float, at_most: float) -> V:
        """Return what was read at this instant or later. Raises what `read` raises.

        Between the starts of two reads are `pause` seconds, more if they take long, `at_most` so many.
        """
        if self.read_at < instant:
            async with self._reading:
                if self.read_at < instant:
                    wait = min(max(pause, self._took * _SHARE), at_most)
                    await asyncio.sleep(self.read_at + wait - monotonic())
                    began = monotonic()
                    self._value = await self._read()
                    self.read_at, self._took = began, monotonic() - began
        return cast("V", self._value)


class _Cached(Struct, Generic[V]):
    """A read of the store, under way or done."""

    read: asyncio.Task[tuple[V, set[str]]]
    fresh_until: float = inf  # until its done callback has run
