"""The thread that sends the heartbeats of all workers of a process: a blocked event loop cannot delay them.

Workers on the same store share one handle in it, hence its connections.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from .._store.protocol import Store

_lock = threading.Lock()
_running: "_Thread | None" = None


def run_on_heartbeat_thread(store: Store, work: Callable[[Store], Coroutine[Any, Any, None]]) -> Future[None]:
    """Call `work` with a handle of the store, on the event loop of the thread.

    The handle is closed after the last call that uses it, and the thread ends with its last call.
    """
    global _running  # noqa: PLW0603  one per process
    with _lock:
        thread = _running = _running or _Thread()
        thread.users += 1
    future = asyncio.run_coroutine_threadsafe(thread.use(store, work), thread.loop)
    future.add_done_callback(lambda _: _leave(thread))
    return future


def _leave(thread: "_Thread") -> None:
    global _running  # noqa: PLW0603  one per process
    with _lock:
        thread.users -= 1
        if thread.users:
            return
        if _running is thread:
            _running = None
    thread.loop.call_soon_threadsafe(thread.ended.set)


class _Thread:
    """An event loop in a thread, and the handles in use on it: each with the number of its users."""

    def __init__(self) -> None:
        self.users = 0
        self.ended = asyncio.Event()
        self._handles: dict[Store, tuple[Store, int]] = {}
        self._started = threading.Event()
        threading.Thread(target=self._run, name="windlass-heartbeat", daemon=True).start()
        self._started.wait()

    def _run(self) -> None:
        asyncio.run(self._until_ended())

    async def _until_ended(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._started.set()
        await self.ended.wait()

    async def use(self, store: Store, work: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
        handle, users = self._handles.get(store) or (store.another(), 0)
        self._handles[store] = handle, users + 1
        try:
            await work(handle)
        finally:
            handle, users = self._handles.pop(store)
            if users > 1:
                self._handles[store] = handle, users - 1
            else:
                await handle.close()


def _forget() -> None:
    """In a forked child: the thread runs in the parent only."""
    global _lock, _running
    _lock, _running = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
