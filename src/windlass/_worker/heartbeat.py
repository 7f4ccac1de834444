"""The heartbeat of a worker: renews its session, on a thread that a blocked event loop cannot delay.

All workers of a process share the thread, and those on the same store a handle in it, hence its connections.
"""

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from .._ids import new_id
from .._model.lease import CLOSE_TIMEOUT, Claimed, Heartbeat, Lease, ProgressReport
from .._model.task import Progress, TaskId
from .._store.outage import Pauses
from .._store.protocol import Store
from .._timers import Timer, wait_for_event
from ..errors import StoreError, StoreUnavailable
from .run import Run

if TYPE_CHECKING:
    from .worker import Worker

logger = logging.getLogger("windlass.worker")

_LAST_PAUSE = 1.0  # seconds between heartbeats that fail: the lease runs out meanwhile
STOP_AT = 0.8  # of the lease, without a renewal: stop tasks before the store gives them to others
_PROGRESS_EVERY = 1.0


class HeldLeases:
    """The session, leases and claim numbers that heartbeats report. Thread-safe: changes are under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fences: dict[TaskId, int] = {}
        self._pending_claims: set[int] = set()  # numbers of claims without a reply yet
        self._number = 0
        self.session = new_id()
        self.opened = False  # whether the store has ever confirmed this session

    def next_claim(self) -> int:
        """Return the number of a claim that is about to be sent."""
        with self._lock:
            self._number += 1
            self._pending_claims.add(self._number)
            return self._number

    def claim_ended(self, number: int, claimed: Iterable[Claimed] = ()) -> None:
        """Hold the leases that came in reply; if none did, the store takes back what it may have granted."""
        with self._lock:
            self._pending_claims.discard(number)
            for one in claimed:
                self._fences[one.task.id] = one.task.fence

    @property
    def claims(self) -> int:
        """How many claims were sent."""
        return self._number

    def drop(self, leases: Iterable[Lease]) -> None:
        """Forget leases that have ended. A newer lease of the same task stays."""
        with self._lock:
            for lease in leases:
                if self._fences.get(lease.task_id) == lease.fence:
                    del self._fences[lease.task_id]

    def confirm(self, session: str) -> None:
        """Record that the store knows the session, if it is still ours."""
        with self._lock:
            if session == self.session:
                self.opened = True

    def snapshot(self) -> tuple[str, bool, tuple[Lease, ...], int]:
        """Return session, whether it is open, its leases, and the highest claim number below any pending."""
        with self._lock:
            through = min(self._pending_claims, default=self._number + 1) - 1
            held = tuple([Lease(task_id, fence) for task_id, fence in self._fences.items()])
            return self.session, self.opened, held, through

    def renew(self) -> None:
        """Start a new session that holds nothing."""
        with self._lock:
            self.session, self.opened = new_id(), False
            self._fences.clear()

    def __len__(self) -> int:
        return len(self._fences)


class HeartbeatLoop:
    """Renews a worker's session, and reports what it holds and the progress of its tasks.

    Calls the worker's `describe` on the heartbeat thread, its `on_reply` and `on_silence` on the event loop
    of the worker.
    """

    def __init__(self, store: Store, worker: "Worker") -> None:
        self._store = store
        self._held = worker.held
        self._interval = worker.settings.heartbeat.total_seconds()
        self._lease = worker.settings.lease
        self._stop_after = self._lease.total_seconds() * STOP_AT
        self._worker = worker
        self._workers_loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._progress: dict[TaskId, ProgressReport] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopping = False
        self._urgent = False  # the next heartbeat must not wait for its turn
        self._running: Future[None] | None = None
        self._renewed = 0.0  # when the last heartbeat that succeeded was sent
        self._silence = Timer(self._stop_tasks_if_silent)

    def report(self, run: Run, progress: Progress) -> None:
        """Report progress soon; a newer report of the same task replaces an older one."""
        with self._lock:
            self._progress[run.task.id] = ProgressReport(run.lease, progress)
        self._wake()

    async def open(self) -> None:
        """Open the session, on the caller's event loop and store handle. Raises StoreError."""
        beat = self._heartbeat()
        await self._store.heartbeat(beat)
        self._held.confirm(beat.session)

    def start(self) -> None:
        self._running = run_on_heartbeat_thread(self._store, self._send_all)
        self._running.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Stop sending; wait until the store handle is closed or left to other workers, or CLOSE_TIMEOUT."""
        self._stopping = True
        self._wake()
        if self._running is not None:
            await asyncio.wait([asyncio.wrap_future(self._running)], timeout=CLOSE_TIMEOUT)

    def send_now(self) -> None:
        """Send the next heartbeat at once: there is a new session to open."""
        self._urgent = True
        self._wake()

    def _wake(self) -> None:
        if self._loop is not None:
            _call_on(self._loop, self._woken.set)

    async def _send_all(self, store: Store) -> None:
        self._loop = asyncio.get_running_loop()
        self._renewed = monotonic()
        self._stop_tasks_if_silent()
        pauses = Pauses(self._worker.outage, last=min(self._interval, _LAST_PAUSE))
        in_phase = False  # The first interval is random: others may have started at the same instant.
        while not self._stopping:
            sent = monotonic()
            try:
                # A call that hangs ends when tasks must be stopped: the next one takes another connection.
                async with asyncio.timeout(self._time_left() or self._stop_after):
                    await self._send(store)
                self._renewed = sent
                pauses.succeeded()
                wait = self._interval if in_phase else self._interval * random.random()
                in_phase = True
            except Exception as error:  # noqa: BLE001 - nothing may end the heartbeat
                in_phase = False
                wait = _pause_after(error, pauses)
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                in_phase = False  # what the call waited for was cancelled, not the heartbeat
                wait = pauses.grow()
            await self._pause(wait)
        self._silence.cancel()

    def _stop_tasks_if_silent(self) -> None:
        """Stop tasks if the session was not renewed in time, whatever became of the call that should have.

        Looks again when it will be time, and every second while heartbeats fail.
        """
        left = self._time_left()
        if not left:
            _call_on(self._workers_loop, self._worker.on_silence, monotonic() - self._renewed)
        self._silence.at(asyncio.get_running_loop().time() + (left or _LAST_PAUSE))

    def _time_left(self) -> float:
        """Return the seconds until tasks must be stopped, if the session is not renewed again."""
        return max(self._renewed + self._stop_after - monotonic(), 0.0)

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
        _call_on(self._workers_loop, self._worker.on_reply, beat.session, reply)

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
        self._woken.clear()
        short = min(_PROGRESS_EVERY, seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(short):
                await self._until_urgent()
        if seconds > short and not self._progress and not self._stopping and not self._urgent:
            await wait_for_event(self._woken, seconds - short)

    async def _until_urgent(self) -> None:
        """Wait for something more urgent than progress."""
        while not self._stopping and not self._urgent:
            await self._woken.wait()
            self._woken.clear()


def _is_cancelled() -> bool:
    """Whether this task was asked to end, rather than something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _pause_after(error: Exception, pauses: Pauses) -> float:
    """Return the seconds until the next heartbeat after one that failed."""
    if isinstance(error, TimeoutError):
        return pauses.failed(StoreUnavailable("it did not answer a heartbeat in time"))
    if isinstance(error, StoreError):
        return pauses.failed(error)
    logger.warning("the heartbeat failed, retrying: %r", error)
    return pauses.grow()


def _log_failure(running: "Future[None]") -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.error("heartbeats failed; other workers will take over this worker's tasks", exc_info=error)


def _call_on(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: object) -> None:
    with suppress(RuntimeError):  # the loop has closed
        loop.call_soon_threadsafe(callback, *args)


# -- the thread --------------------------------------------------------------------------------------

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
