"""Long polls: wait for tasks to end, for wakes, and notice clients that disconnect."""

import asyncio
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from starlette.requests import Request

from .._client.tasks.waiter import wait_for_end
from .._model.task import Task, TaskId
from .._store.protocol import Store, Wake

_closings: set[asyncio.Task[None]] = set()  # keeps references, or the tasks may be collected


async def task_ended(
    store: Store, task_id: TaskId, seconds: float, closing: asyncio.Event, *others: Coroutine[Any, Any, None]
) -> Task | None:
    """Return the task once it has ended; None if the time is up, the server closes, or one of `others` ends.

    Also None if the task may be gone. Raises what the store raises.
    """
    ended = asyncio.ensure_future(wait_for_end(store, task_id, seconds))
    waits = [ended, *map(asyncio.ensure_future, (closing.wait(), *others))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return ended.result() if ended.done() else None
    finally:
        for wait in waits:
            wait.cancel()


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
