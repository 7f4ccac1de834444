"""Threads for handlers that block. As many as are busy at once, and no more."""

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple


class _Work(NamedTuple):
    function: Callable[..., Any]
    arguments: dict[str, Any]
    context: contextvars.Context
    future: asyncio.Future[tuple[Any, BaseException | None]]


class Threads:
    """Runs blocking functions for one event loop. A thread cannot be killed; it can only be waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._outbox: deque[tuple[_Work, Any, BaseException | None]] = deque()
        self._lock = threading.Lock()
        self._told = False  # the loop has been told of the outbox and has not looked yet
        self._threads = 0
        self._open = 0  # runs handed in and not finished

    def run(
        self, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> asyncio.Future[tuple[Any, BaseException | None]]:
        """Start it in a thread; the future has its result and its error. To be called on the loop.

        An error is handed over as a value: there are some that no future can raise.
        """
        work = _Work(function, arguments, contextvars.copy_context(), self._loop.create_future())
        self._open += 1
        if self._open > self._threads:
            self._threads += 1
            threading.Thread(
                target=self._serve, name=f"windlass-handler-{self._threads}", daemon=True
            ).start()
        self._inbox.put(work)
        return work.future

    def close(self) -> None:
        """Let idle threads end; busy ones end when their handlers do."""
        for _ in range(self._threads):
            self._inbox.put(None)

    def _serve(self) -> None:
        while (work := self._inbox.get()) is not None:
            try:
                result, error = work.context.run(work.function, **work.arguments), None
            except BaseException as raised:  # noqa: BLE001 - the runner turns it into an outcome
                result, error = None, raised
            self._outbox.append((work, result, error))
            self._tell()

    def _tell(self) -> None:
        """Wake the loop once for however many are done when it gets to look."""
        with self._lock:
            if self._told:
                return
            self._told = True
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # the loop has closed: nobody is waiting any more
            return

    def _collect(self) -> None:
        with self._lock:
            self._told = False
        while self._outbox:
            work, result, error = self._outbox.popleft()
            self._open -= 1
            if work.future.done():  # abandoned at shutdown
                continue
            work.future.set_result((result, error))
