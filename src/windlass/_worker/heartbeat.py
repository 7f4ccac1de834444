"""The heartbeat: a thread with a store handle of its own, so that a blocked event loop cannot delay it."""

import asyncio
import logging
import random
import threading
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from .._model.lease import CLOSE_TIMEOUT, Heartbeat, ProgressReport
from .._model.task import TaskId
from .._store.protocol import Store
from .._timers import wait_for_event
from .held_leases import HeldLeases

if TYPE_CHECKING:
    from .worker import Worker

logger = logging.getLogger("windlass.worker")

STOP_AT = 0.8  # of the lease, without a renewal: stop tasks before the store gives them to others
_PROGRESS_EVERY = 1.0


class HeartbeatThread:
    """Renews a worker's session, and reports what it holds and the progress of its tasks.

    Calls the worker's `describe`, `on_reply` and `on_silence`, all of them on this thread.
    """

    def __init__(
        self,
        store: Store,
        held: HeldLeases,
        worker: "Worker",
        *,
        interval: timedelta,
        lease: timedelta,
    ) -> None:
        self._store = store
        self._held = held
        self._interval = interval.total_seconds()
        self._lease = lease
        self._stop_after = lease.total_seconds() * STOP_AT
        self._worker = worker
        self._lock = threading.Lock()
        self._progress: dict[TaskId, ProgressReport] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._stopping = False
        self._urgent = False  # the next heartbeat must not wait for its turn
        self._thread: threading.Thread | None = None

    def report(self, reported: ProgressReport) -> None:
        """Report progress soon; a newer report of the same task replaces an older one."""
        with self._lock:
            self._progress[reported.lease.task_id] = reported
        self._wake()

    async def open(self) -> None:
        """Open the session, on the caller's event loop and store handle. Raises StoreError."""
        beat = self._heartbeat()
        await self._store.heartbeat(beat)
        self._held.confirm(beat.session)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="windlass-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop the thread; wait until it has closed its store handle, or for CLOSE_TIMEOUT."""
        self._stopping = True
        self._wake()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT)

    def send_now(self) -> None:
        """Send the next heartbeat at once: there is a new session to open."""
        self._urgent = True
        self._wake()

    def _wake(self) -> None:
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(woken.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._send_all())
        except Exception:
            logger.exception("the heartbeat thread failed; other workers will take over this worker's tasks")

    async def _send_all(self) -> None:
        self._loop, self._woken = asyncio.get_running_loop(), asyncio.Event()
        store = self._store.another()
        renewed = monotonic()
        try:
            while not self._stopping:
                wait = self._interval
                sent = monotonic()
                # Neither a call that hangs nor a pause may outlast the moment to stop tasks.
                left = self._time_left(renewed)
                if not left:
                    self._worker.on_silence(sent - renewed)
                try:
                    await asyncio.wait_for(self._send(store), left or self._stop_after)
                    renewed = sent
                except Exception as error:  # noqa: BLE001 - nothing may end the heartbeat
                    logger.warning("the heartbeat failed, retrying: %r", error)
                    if left and not self._time_left(renewed):
                        self._worker.on_silence(monotonic() - renewed)
                    wait = min(self._interval, 1.0) * (0.5 + random.random())
                    wait = min(wait, self._time_left(renewed) or wait)
                await self._pause(wait)
        finally:
            await store.close()

    def _time_left(self, renewed: float) -> float:
        """Return the seconds until tasks must be stopped, if the session is not renewed again."""
        return max(renewed + self._stop_after - monotonic(), 0.0)

    async def _send(self, store: Store) -> None:
        await store.open()
        self._urgent = False
        beat = self._heartbeat()
        reply = await store.heartbeat(beat)
        if reply.alive:
            self._held.confirm(beat.session)
        with self._lock:
            for reported in beat.progress:
                if self._progress.get(reported.lease.task_id) is reported:
                    del self._progress[reported.lease.task_id]
        self._worker.on_reply(beat.session, reply)

    def _heartbeat(self) -> Heartbeat:
        session, opened, held, through = self._held.snapshot()
        with self._lock:
            progress = tuple(self._progress.values())
        return Heartbeat(
            session=session,
            worker=self._worker.describe(),
            lease_for=self._lease,
            opening=not opened,
            held=held,
            through=through,
            progress=progress,
        )

    async def _pause(self, seconds: float) -> None:
        """Wait for the next heartbeat: less if there is progress to report, but not below about a second."""
        assert self._woken is not None
        self._woken.clear()
        if self._stopping:
            return
        short = min(_PROGRESS_EVERY, seconds)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._until_urgent(), short)
        if seconds > short and not self._progress and not self._stopping and not self._urgent:
            await wait_for_event(self._woken, seconds - short)

    async def _until_urgent(self) -> None:
        """Wait for something more urgent than progress."""
        assert self._woken is not None
        while not self._stopping and not self._urgent:
            await self._woken.wait()
            self._woken.clear()
