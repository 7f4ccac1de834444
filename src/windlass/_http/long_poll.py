"""Long polls: wait for tasks to end, for wakes, and notice clients that disconnect."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from starlette.requests import Request

from .._model.filter import MAX_PAGE, Filter, Page
from .._model.state import ENDED
from .._model.task import TaskId
from .._store.protocol import Store, Wake
from .._timers import wait_for_event
from ..errors import StoreError

_FIRST_PAUSE, _LAST_PAUSE = 0.01, 0.2
_closings: set[asyncio.Task[None]] = set()  # keeps references, or the tasks may be collected


class TaskWaiter:
    """Waits for tasks to end, with one query to the store for all requests that wait."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting = Counter[TaskId]()
        self._ends: dict[TaskId, asyncio.Event] = {}
        self._polling: asyncio.Task[None] | None = None
        self._pause = _FIRST_PAUSE

    async def wait(
        self, task_id: TaskId, seconds: float, closing: asyncio.Event, *others: Coroutine[Any, Any, None]
    ) -> None:
        """Return when the task has ended, the time is up, the server closes, or one of `others` returns."""
        end = self._ends.setdefault(task_id, asyncio.Event())
        self._waiting[task_id] += 1
        self._pause = _FIRST_PAUSE
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        waits = [asyncio.ensure_future(one) for one in (end.wait(), closing.wait(), *others)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            self._waiting[task_id] -= 1
            if not self._waiting[task_id]:
                del self._waiting[task_id], self._ends[task_id]

    async def _poll(self) -> None:
        never = asyncio.Event()
        while self._ends:
            ids = tuple(self._ends)
            for start in range(0, len(ids), MAX_PAGE):
                await self._find_ended(ids[start : start + MAX_PAGE])
            await wait_for_event(never, self._pause)
            self._pause = min(self._pause * 1.5, _LAST_PAUSE)

    async def _find_ended(self, ids: tuple[TaskId, ...]) -> None:
        try:
            found = await self._store.find(Filter(ids=ids, states=tuple(ENDED)), Page(limit=len(ids)))
        except StoreError:  # each request reads its task at the end of the wait, and reports the error then
            return
        for task in found.items:
            if task.id in self._ends:
                self._ends[task.id].set()


class WakeListener:
    """Listens for wakes of some queues within a `with` block."""

    def __init__(self, store: Store, queues: Sequence[str], closing: asyncio.Event) -> None:
        self._closing = closing
        self._wakes = store.wakes(queues)
        self._next = asyncio.ensure_future(anext(self._wakes))

    async def next(self, seconds: float) -> Wake | None:
        """Return the next wake; None when the time is up or the server closes. Raises the store's errors."""
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([self._next, closing], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        if not self._next.done():
            return None
        wake = self._next.result()
        self._next = asyncio.ensure_future(anext(self._wakes))
        return wake

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A cancelled request cancels every await in here too, so a task of its own closes the generator.
        closing = asyncio.ensure_future(self._close())
        _closings.add(closing)
        closing.add_done_callback(_closings.discard)

    async def _close(self) -> None:
        self._next.cancel()
        await asyncio.wait([self._next])
        await self._wakes.aclose()  # type: ignore[attr-defined]  # a generator in every store


async def disconnected(request: Request) -> None:
    """Return when the client has disconnected. Only for requests whose body nobody else reads."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
