"""Threads for blocking handlers: as many as are busy at once."""

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from .run import Run


class _Work(NamedTuple):
    function: Callable[..., Any]
    arguments: dict[str, Any]
    run: Run
    context: contextvars.Context
    future: asyncio.Future[tuple[Any, BaseException | None]]


class Threads:
    """Runs blocking functions for one event loop. A thread cannot be killed, only waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._outbox: deque[tuple[_Work, Any, BaseException | None]] = deque()
        self._lock = threading.Lock()
        self._notified = False  # the loop was notified of results and has not collected them yet
        self._threads = 0
        self._busy = 0  # functions that have not ended

    def run(
        self, function: Callable[..., Any], arguments: dict[str, Any], run: Run
    ) -> asyncio.Future[tuple[Any, BaseException | None]]:
        """Run a function in a thread, which its run names; the future gets its result and its error.

        The error is a value, as a future cannot raise every exception (StopIteration). Call it on the loop.
        """
        work = _Work(function, arguments, run, contextvars.copy_context(), self._loop.create_future())
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"windlass-handler-{self._threads}", daemon=True).start()
        self._inbox.put(work)
        return work.future

    def close(self) -> None:
        """End idle threads; busy ones end with their handlers."""
        for _ in range(self._threads):
            self._inbox.put(None)

    def _work(self) -> None:
        thread = threading.get_ident()
        while (work := self._inbox.get()) is not None:
            work.run.thread = thread
            try:
                result, error = work.context.run(work.function, **work.arguments), None
            except BaseException as raised:  # noqa: BLE001 - the runner turns it into an outcome
                result, error = None, raised
            work.run.thread = None
            self._outbox.append((work, result, error))
            del work, result, error  # while this thread waits, they must not stay in memory
            self._notify()

    def _notify(self) -> None:
        """Wake the loop, once for all results until it collects them."""
        with self._lock:
            if self._notified:
                return
            self._notified = True
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        with self._lock:
            self._notified = False
        while self._outbox:
            work, result, error = self._outbox.popleft()
            self._busy -= 1
            if not work.future.done():  # else abandoned at shutdown
                work.future.set_result((result, error))
