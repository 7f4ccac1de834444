"""The heartbeat: a thread with a store handle of its own, so that a blocked loop cannot starve it. (D4)"""

import asyncio
import logging
import random
import threading
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Protocol

from .._model.lease import CLOSE_TIMEOUT, Heartbeat, HeartbeatReply, ProgressReport
from .._model.record import Worker
from .._model.task import TaskId
from .._store.protocol import Store
from .._timers import wait_for_event
from .held_leases import Holdings

logger = logging.getLogger("windlass.worker")

FENCE_AT = 0.8  # of the lease without a renewal: stop before the store would take over
_PROGRESS_EVERY = 1.0


class Body(Protocol):
    """Whom the heart beats for: the worker, seen from here. Called on the heart's own thread."""

    def describe(self) -> Worker:
        """What the store should know about this worker."""
        ...

    def on_pulse(self, session: str, pulse: HeartbeatReply) -> None:
        """The store has answered a heartbeat of this session."""
        ...

    def on_silence(self, seconds: float) -> None:
        """No heartbeat got through for so long that the leases are about to run out."""
        ...


class Heart:
    """Beats for a worker's session."""

    def __init__(
        self,
        store: Store,
        holdings: Holdings,
        body: Body,
        *,
        interval: timedelta,
        lease: timedelta,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._body = body
        self._interval = interval.total_seconds()
        self._lease = lease
        self._patience = lease.total_seconds() * FENCE_AT
        self._lock = threading.Lock()
        self._progress: dict[TaskId, ProgressReport] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurry: asyncio.Event | None = None
        self._stopping = False
        self._soon = False  # the next beat should not wait for its turn
        self._thread: threading.Thread | None = None

    def report(self, reported: ProgressReport) -> None:
        """Tell the store of progress soon; a newer report of the same task replaces an older one."""
        with self._lock:
            self._progress[reported.lease.task_id] = reported
        self._nudge()

    async def open(self) -> None:
        """Open the session, on the caller's loop and the caller's store; raises if the store cannot."""
        beat = self._beat()
        await self._store.heartbeat(beat)
        self._holdings.confirm(beat.session)

    def start(self) -> None:
        """Begin to beat."""
        self._thread = threading.Thread(target=self._run, name="windlass-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Beat no more, and wait until the thread has let go of its store, or for long enough."""
        self._stopping = True
        self._nudge()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT)

    def hurry(self) -> None:
        """Beat soon: there is a new session to open."""
        self._soon = True
        self._nudge()

    def _nudge(self) -> None:
        loop, hurry = self._loop, self._hurry
        if loop is not None and hurry is not None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(hurry.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception:
            logger.exception("the heartbeat thread died; this worker will be taken for dead")

    async def _live(self) -> None:
        self._loop, self._hurry = asyncio.get_running_loop(), asyncio.Event()
        store = self._store.another()
        renewed = monotonic()
        try:
            while not self._stopping:
                wait = self._interval
                sent = monotonic()
                # Neither a call that hangs nor a pause may outlast the moment to stop by.
                left = self._left(renewed)
                if not left:
                    self._body.on_silence(sent - renewed)
                try:
                    await asyncio.wait_for(self._once(store), left or self._patience)
                    renewed = sent
                except Exception as error:  # noqa: BLE001 - nothing may end the heartbeat
                    logger.warning("the heartbeat failed, trying again: %r", error)
                    if left and not self._left(renewed):
                        self._body.on_silence(monotonic() - renewed)
                    wait = min(self._interval, 1.0) * (0.5 + random.random())
                    wait = min(wait, self._left(renewed) or wait)
                await self._rest(wait)
        finally:
            await store.close()

    def _left(self, renewed: float) -> float:
        """Seconds from here to the moment to stop by, seen from the last renewal."""
        return max(renewed + self._patience - monotonic(), 0.0)

    async def _once(self, store: Store) -> None:
        await store.open()
        self._soon = False
        beat = self._beat()
        pulse = await store.heartbeat(beat)
        if pulse.alive:
            self._holdings.confirm(beat.session)
        with self._lock:
            for reported in beat.progress:
                if self._progress.get(reported.lease.task_id) is reported:
                    del self._progress[reported.lease.task_id]
        self._body.on_pulse(beat.session, pulse)

    def _beat(self) -> Heartbeat:
        session, opened, held, through = self._holdings.snapshot()
        with self._lock:
            progress = tuple(self._progress.values())
        return Heartbeat(
            session=session,
            worker=self._body.describe(),
            lease_for=self._lease,
            opening=not opened,
            held=held,
            through=through,
            progress=progress,
        )

    async def _rest(self, seconds: float) -> None:
        """Until the next beat, or sooner if there is progress to tell; at most about once a second."""
        assert self._hurry is not None
        self._hurry.clear()
        if self._stopping:
            return
        short = min(_PROGRESS_EVERY, seconds)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._urgent(), short)
        if seconds > short and not self._progress and not self._stopping and not self._soon:
            await wait_for_event(self._hurry, seconds - short)

    async def _urgent(self) -> None:
        """Until there is something more urgent than progress."""
        assert self._hurry is not None
        while not self._stopping and not self._soon:
            await self._hurry.wait()
            self._hurry.clear()
