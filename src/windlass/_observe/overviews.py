"""Overviews, made no more often than is good for the store, however many ask."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from math import inf
from time import monotonic

from .._model.filter import Filter
from .._store.protocol import Store
from ..errors import StoreUnavailable
from .overview import EVERYTHING, Overview, look

EVERY = timedelta(seconds=5)
PATIENCE = timedelta(seconds=8)
"""For so long the store may think; whoever scrapes gives up after ten seconds."""

_SHARE = 10
_MAX_KEPT = 200


class _Kept:
    """One look at the store: under way, or done and fresh until then."""

    __slots__ = ("fresh_until", "look")

    def __init__(self, look: "asyncio.Task[Overview]") -> None:
        self.look = look
        self.fresh_until = inf  # until it is told that it is done: a moment after it is


class Overviews:
    """The newest overview of each filter. For one event loop.

    Whoever asks while a look is under way waits for that one. The next is not before `every` has passed, nor
    before ten times what this one took: looking never takes more than a tenth of the store's time. A look
    that failed counts as one, so that a store in trouble is not asked more often.
    """

    def __init__(
        self,
        store: Store,
        *,
        every: timedelta = EVERY,
        patience: timedelta = PATIENCE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._every = every.total_seconds()
        self._patience = patience.total_seconds()
        self._clock = clock
        self._kept: dict[Filter, _Kept] = {}

    async def get(self, where: Filter = EVERYTHING) -> Overview:
        """The overview of everything, or of what the filter leaves of it. Raises StoreError."""
        kept = self._kept.get(where)
        if kept is None or (kept.look.done() and self._clock() >= kept.fresh_until):
            kept = self._start(where)
        # Shielded: one who no longer waits does not take it away from the others.
        return await asyncio.shield(kept.look)

    def _start(self, where: Filter) -> _Kept:
        self._kept.pop(where, None)
        for old in [*self._kept][: max(len(self._kept) + 1 - _MAX_KEPT, 0)]:
            del self._kept[old]
        look = asyncio.create_task(self._look(where))
        kept = self._kept[where] = _Kept(look)
        began = self._clock()

        def done(finished: "asyncio.Task[Overview]") -> None:
            now = self._clock()
            kept.fresh_until = now + max(self._every, (now - began) * (_SHARE - 1))
            if finished.cancelled() or finished.exception():  # asked for, lest asyncio complain of it
                return

        look.add_done_callback(done)
        return kept

    async def _look(self, where: Filter) -> Overview:
        try:
            async with asyncio.timeout(self._patience):
                await self._store.open()
                return await look(self._store, where)
        except TimeoutError:
            raise StoreUnavailable(
                f"the store has not answered within {self._patience:g} s how much there is in it"
            ) from None
