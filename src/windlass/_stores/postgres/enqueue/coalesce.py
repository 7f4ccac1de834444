"""Plain enqueues of one event loop that come at the same time go together: one statement, one commit."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ...._model.task import Enqueued, NewTask
from ....errors import StoreUnavailable

Send = Callable[[Sequence[NewTask]], Awaitable[list[Enqueued]]]

MAX_TOGETHER = 500


class Together:
    """Nobody waits for company; whoever comes while others are under way goes next, with all the rest.

    One flight at a time: with two there are half as many aboard each, and 16 callers got a tenth less done.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[tuple[Sequence[NewTask], asyncio.Future[list[Enqueued]]]] = deque()
        self._is_flying = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def enqueue(self, batch: Sequence[NewTask]) -> list[Enqueued]:
        """Enqueue plain tasks."""
        if len(batch) >= MAX_TOGETHER:
            return await self._send(batch)
        if not self._is_flying:
            self._is_flying = True
            try:
                return await self._send(batch)
            finally:
                self._landed()
        future: asyncio.Future[list[Enqueued]] = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, future))
        return await future

    def _landed(self) -> None:
        self._is_flying = bool(self._waiting)
        if self._is_flying:
            task = asyncio.create_task(self._fly())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fly(self) -> None:
        group = self._next_group()
        try:
            if group:  # All who waited may have given up.
                await self._enqueue_all(group)
        finally:
            for _, future in group:
                if not future.done():
                    future.cancel()
            self._landed()

    def _next_group(self) -> list[tuple[Sequence[NewTask], "asyncio.Future[list[Enqueued]]"]]:
        group, number = [], 0
        while self._waiting and number < MAX_TOGETHER:
            batch, future = self._waiting.popleft()
            if not future.done():  # Its caller may have given up.
                group.append((batch, future))
                number += len(batch)
        return group

    async def _enqueue_all(
        self, group: list[tuple[Sequence[NewTask], "asyncio.Future[list[Enqueued]]"]]
    ) -> None:
        try:
            answers = await self._send([new for batch, _ in group for new in batch])
        except StoreUnavailable as error:
            for _, future in group:
                _fail(future, error)
        except Exception as error:  # noqa: BLE001  it is the caller's to hear
            if len(group) == 1:
                _fail(group[0][1], error)
                return
            for one in group:  # One of them is at fault; the others must not suffer for it.
                await self._enqueue_all([one])
        else:
            place = 0
            for batch, future in group:
                if not future.done():
                    future.set_result(answers[place : place + len(batch)])
                place += len(batch)


def _fail(future: "asyncio.Future[list[Enqueued]]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
