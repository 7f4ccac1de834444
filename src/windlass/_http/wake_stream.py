"""Hints of a store, for as long as somebody over HTTP listens for them."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from .._store.protocol import Wake
from .service import Service

_endings: set[asyncio.Task[None]] = set()


class Hints:
    """What wakes who waits for tasks of these queues. `with` ends it."""

    def __init__(self, service: Service, queues: Sequence[str]) -> None:
        self._closing = service.closing
        self._hints = service.store.wakes(queues)
        self._next = asyncio.ensure_future(anext(self._hints))

    async def next(self, seconds: float) -> Wake | None:
        """The next hint; None if none comes in time, or the server closes. Raises what the store raises."""
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([self._next, closing], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        if not self._next.done():
            return None
        wake = self._next.result()
        self._next = asyncio.ensure_future(anext(self._hints))
        return wake

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever cancels us cancels every wait in here as well: the end must not depend on it.
        ending = asyncio.ensure_future(self._end())
        _endings.add(ending)
        ending.add_done_callback(_endings.discard)

    async def _end(self) -> None:
        self._next.cancel()
        await asyncio.wait([self._next])
        await self._hints.aclose()  # type: ignore[attr-defined]  # a generator in every store
