"""Coalesce concurrent calls on one event loop into one statement and one commit: enqueues, heartbeats."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ....errors import StoreUnavailable

A = TypeVar("A")
R = TypeVar("R")

MAX_COALESCED = 500


class Coalescer(Generic[A, R]):
    """Sends the first batch immediately, and those that arrive meanwhile together afterwards.

    `send` returns a result for each item of a batch.

    One statement at a time: with two, each carried half as many tasks, and 16 callers got 10 % less done.
    """

    def __init__(self, send: Callable[[Sequence[A]], Awaitable[list[R]]]) -> None:
        self._send = send
        self._waiting: deque[tuple[Sequence[A], asyncio.Future[list[R]]]] = deque()
        self._is_sending = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, batch: Sequence[A]) -> list[R]:
        if len(batch) >= MAX_COALESCED:
            return await self._send(batch)
        if not self._is_sending:
            self._is_sending = True
            try:
                return await self._send(batch)
            finally:
                self._send_next()
        future: asyncio.Future[list[R]] = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, future))
        return await future

    def _send_next(self) -> None:
        self._is_sending = bool(self._waiting)
        if self._is_sending:
            task = asyncio.create_task(self._send_waiting())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send_waiting(self) -> None:
        group = self._next_group()
        try:
            if group:  # All callers may have been cancelled.
                await self._send_group(group)
        finally:
            for _, future in group:
                if not future.done():
                    future.cancel()
            self._send_next()

    def _next_group(self) -> list[tuple[Sequence[A], asyncio.Future[list[R]]]]:
        group, number = [], 0
        while self._waiting and number < MAX_COALESCED:
            batch, future = self._waiting.popleft()
            if not future.done():  # Its caller may have been cancelled.
                group.append((batch, future))
                number += len(batch)
        return group

    async def _send_group(self, group: list[tuple[Sequence[A], asyncio.Future[list[R]]]]) -> None:
        try:
            results = await self._send([one for batch, _ in group for one in batch])
        except StoreUnavailable as error:
            for _, future in group:
                _fail(future, error)
        except Exception as error:  # noqa: BLE001 - it is raised to the callers
            if len(group) == 1:
                _fail(group[0][1], error)
                return
            for one in group:  # Only the batch that caused the error must fail.
                await self._send_group([one])
        else:
            start = 0
            for batch, future in group:
                if not future.done():
                    future.set_result(results[start : start + len(batch)])
                start += len(batch)


def _fail(future: asyncio.Future[list[R]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
