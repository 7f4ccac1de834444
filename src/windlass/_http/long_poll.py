"""Waiting for tasks to end: one question to the store for all who wait, however many they are."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from .._model.filter import MAX_PAGE, Filter, Page
from .._model.state import ENDED
from .._model.task import TaskId
from .._store.protocol import Store
from .._timers import wait_for_event
from ..errors import StoreError

_FIRST_LOOK, _LAST_LOOK = 0.01, 0.2


class Watch:
    """Looks for the ends of the tasks that somebody waits for, while somebody does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waited = Counter[TaskId]()
        self._ends: dict[TaskId, asyncio.Event] = {}
        self._looking: asyncio.Task[None] | None = None
        self._pause = _FIRST_LOOK

    async def ended(
        self, task_id: TaskId, seconds: float, closing: asyncio.Event, *others: Coroutine[Any, Any, None]
    ) -> None:
        """Return once the task has ended, the time is over, the server closes, or another ends."""
        end = self._ends.setdefault(task_id, asyncio.Event())
        self._waited[task_id] += 1
        self._pause = _FIRST_LOOK
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        waits = [asyncio.ensure_future(one) for one in (end.wait(), closing.wait(), *others)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            self._waited[task_id] -= 1
            if not self._waited[task_id]:
                del self._waited[task_id], self._ends[task_id]

    async def _look(self) -> None:
        never = asyncio.Event()
        while self._ends:
            ids = tuple(self._ends)
            for start in range(0, len(ids), MAX_PAGE):
                await self._ask(ids[start : start + MAX_PAGE])
            await wait_for_event(never, self._pause)
            self._pause = min(self._pause * 1.5, _LAST_LOOK)

    async def _ask(self, ids: tuple[TaskId, ...]) -> None:
        try:
            found = await self._store.find(Filter(ids=ids, states=tuple(ENDED)), Page(limit=len(ids)))
        except StoreError:  # Who waits looks for himself in the end, and is told.
            return
        for task in found.items:
            if task.id in self._ends:
                self._ends[task.id].set()
