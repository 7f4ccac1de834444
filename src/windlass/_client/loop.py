"""An event loop in a thread of its own, on which blocking callers run coroutines."""

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads without a loop. Starts at first use, and again after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inherited: list[asyncio.AbstractEventLoop] = []
        self._end: weakref.finalize[Any, Any] | None = None
        _all.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, in the caller's context, and wait for its result."""
        loop = self._running()
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller was interrupted: nobody waits for the result
            raise

    def reset(self) -> None:
        """Start afresh in a forked child, which has neither the thread nor, perhaps, a free lock."""
        self._lock = threading.Lock()
        if self._loop is not None:
            self._inherited.append(self._loop)  # never closed here: its pipes are the parent's
            self._loop = None
        if self._end is not None:
            self._end.detach()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="windlass-sync", daemon=True).start()
                self._end = weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
                self._end.atexit = False
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run until the LoopThread is garbage-collected."""
    try:
        loop.run_forever()
    finally:
        loop.close()


def _reset_all() -> None:
    for one in _all:
        one.reset()


_all: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_reset_all)
