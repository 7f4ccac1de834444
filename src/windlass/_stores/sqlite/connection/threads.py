"""Two threads with a connection each: one writes, in groups that share a commit, and one reads."""

import asyncio
import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ...._clock import Clock
from ....errors import StoreError, StoreUnavailable
from .. import schema
from ..read.find import Reader
from ..transaction import Transaction, Wakes, begin
from .errors import translated, translated_errors
from .file_lock import FileLock
from .open import connect, never_close

P = TypeVar("P")
R = TypeVar("R")

logger = logging.getLogger("windlass.store")

DEADLINE_SECONDS = 30.0
"""How long a request may take, waiting included, before it fails with StoreUnavailable."""

MAX_GROUP = 1000
MAX_GROUP_SECONDS = 0.02
"""A group takes no further requests after this time, which bounds the wait for its commit."""

GAP_SHARE = 0.25
MIN_GAP_SECONDS = 0.0001
MAX_GAP_SECONDS = 0.05
"""On average the file is left unlocked for this share of the time it was locked. Programs that do not use our
file lock only poll SQLite's; without a gap they would never get in. Idle time counts as gap, so that usually
little is left to sleep."""


class Request(Struct, eq=False):
    """Work for a thread, and the event loop that awaits its result."""

    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    wakes: Wakes | None = None


class StoreThread(Generic[P]):
    """A thread with a connection of its own that serves requests in order, from any thread and event loop.

    It starts at once and connects; `ready` is done when it has, or has the error.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.ready: Future[None] = uncancellable()
        self.path = path
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._lock = threading.Lock()
        self.is_closed = False  # accepts no more requests
        self._failure: BaseException | None = None  # why it could not connect, or crashed
        self._ended: Future[None] = uncancellable()
        self._thread = threading.Thread(target=self._run, name=f"windlass-{name}", daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[P], R]) -> R:
        """Run `work` on the thread and return its result. A request cancelled before its turn is not run."""
        loop = asyncio.get_running_loop()
        request = Request(work, loop, loop.create_future())
        with self._lock:
            if self.is_closed:
                raise self._failure or closed(self.path)
            self._requests.put(request)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                result: R = await request.future
        except TimeoutError as error:
            raise StoreUnavailable(
                f"timed out after {DEADLINE_SECONDS:.0f} s waiting for {self.path}: look for a stopped or "
                f"hanging process that has {self.path.name}-lock open, or for a slow disk; the request may "
                f"still be carried out, and repeating it is safe"
            ) from error
        return result

    def close(self) -> "Future[None]":
        """Serve the pending requests, then end; the returned future is done when the thread ends."""
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                self._requests.put(None)
        return self._ended

    def join(self) -> None:
        """Wait for the thread to exit, once its future is done."""
        self._thread.join()

    def abandon_after_fork(self) -> None:
        """In a forked child: leave the connection to the parent; even closing the copy would harm it."""
        connection: sqlite3.Connection | None = getattr(self, "_connection", None)
        if connection is not None:  # Unset if the fork came before the thread connected.
            never_close(connection)

    def _run(self) -> None:
        try:
            self._connection = connect(self.path)
            self._open()
        except BaseException as error:  # noqa: BLE001 - raised to the caller that opens the store
            self._fail_pending(error)  # first: who opens the store again after the error needs a new thread
            self.ready.set_exception(error)
            self._ended.set_result(None)
            return
        self.ready.set_result(None)
        request: Request | None = None
        try:
            while (request := self._requests.get()) is not None:
                self._serve(request)
        except BaseException as error:  # noqa: BLE001 - a bug; pending requests must fail
            self._crash(error, request)
        finally:
            with suppress(sqlite3.Error, OSError):
                self._close_connection()
            self._ended.set_result(None)

    def _crash(self, error: BaseException, request: Request | None) -> None:
        """Fail this and all pending requests; the next use starts a new thread."""
        logger.critical("the store thread for %s crashed", self.path, exc_info=error)
        crashed = StoreUnavailable(
            f"the store thread for {self.path} crashed ({error!r}): the request may have been carried "
            f"out, and repeating it is safe; retry"
        )
        crashed.__cause__ = error
        self._fail_pending(crashed, request)

    def _fail_pending(self, error: BaseException, request: Request | None = None) -> None:
        """Close; fail this request and all that are pending, and any that is submitted later."""
        self._failure = error
        self.close()
        failed = [] if request is None else [request]
        failed += iter(self._requests.get, None)
        for one in failed:
            one.error = error
        deliver(failed)

    def _open(self) -> None:
        raise NotImplementedError

    def _close_connection(self) -> None:
        self._connection.close()

    def _serve(self, request: Request) -> None:
        raise NotImplementedError


def closed(path: Path) -> StoreError:
    """Return the error for use of a closed store."""
    return StoreError(f"the store on {path} is closed; open it again to use it")


def uncancellable() -> "Future[Any]":
    """Return a future that is not cancelled when a waiting caller is."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def deliver(requests: list[Request]) -> None:
    """Resolve the futures of these requests, with one call per event loop; closed loops are skipped."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Request]] = defaultdict(list)
    for request in requests:
        by_loop[request.loop].append(request)
    for loop, served in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, served)
        except RuntimeError:
            continue


def _resolve(requests: list[Request]) -> None:
    for request in requests:
        if request.future.done():
            continue
        if request.error is None:
            request.future.set_result(request.result)
        else:
            request.future.set_exception(request.error)


class ReaderThread(StoreThread[Reader]):
    """Serves reads one by one."""

    def _open(self) -> None:
        self._reader = Reader(self._connection)

    def _serve(self, request: Request) -> None:
        if request.future.cancelled():
            return
        try:
            request.result = request.work(self._reader)
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            request.error = translated(error, self.path)
        deliver([request])


class WriterThread(StoreThread[Transaction]):
    """Serves writes in groups: one transaction and one sync for all requests that arrived meanwhile."""

    def __init__(self, path: Path, clock: Clock, wake: Callable[[Wakes], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._wake_failed = False
        self._unlocked_at = self._gap_owed = 0.0
        self._file_lock = FileLock()
        super().__init__(path, "write")

    def _open(self) -> None:
        try:
            with translated_errors(self.path):
                self._file_lock.open_beside(self.path)
                schema.ensure(schema.File(self.path, self._connection, self._file_lock))
        except BaseException:
            self._close_connection()
            raise

    def _close_connection(self) -> None:
        super()._close_connection()
        self._file_lock.close()

    def abandon_after_fork(self) -> None:
        """In a forked child: close the lock files, and leave the connection to the parent."""
        self._file_lock.close()
        super().abandon_after_fork()

    # -- groups --------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> None:
        group: list[Request] = []
        wakes = Wakes()
        committed = False
        try:
            with self._file_lock:
                self._leave_gap()
                began = time.perf_counter()
                begin(self._connection, self.path)
                self._serve_group(request, group, began)
                if self._connection.in_transaction:  # Not if a single request failed and was rolled back.
                    self._connection.execute("COMMIT")
                self._unlocked_at = time.perf_counter()
                self._gap_owed += GAP_SHARE * (self._unlocked_at - began)
                for done in group:
                    if done.wakes is not None:
                        wakes.merge(done.wakes)
                committed = True
                deliver(group)
                if self._file_lock.has_waiters():
                    self._leave_gap()
        except BaseException as error:  # noqa: BLE001 - passed on to the callers
            if not committed:  # A failure after the commit is left to the next request.
                self._fail(group or [request], error)
        if wakes:
            self._notify(wakes)

    def _notify(self, wakes: Wakes) -> None:
        try:
            self._wake(wakes)
        except Exception:  # Only a hint: listeners also poll.
            if not self._wake_failed:
                logger.warning(
                    "cannot notify the listeners on %s; they poll instead", self.path, exc_info=True
                )
            self._wake_failed = True

    def _serve_group(self, request: Request, group: list[Request], began: float) -> None:
        """Run the request and those that wait behind it."""
        if self._requests.empty():
            self._run_request(request, group, undo="ROLLBACK")
            return
        following: Request | None = request
        while following is not None:
            self._connection.execute("SAVEPOINT windlass_request")
            self._run_request(following, group, undo="ROLLBACK TO windlass_request")
            self._connection.execute("RELEASE windlass_request")
            following = self._next(len(group), time.perf_counter() - began)

    def _next(self, served: int, elapsed: float) -> Request | None:
        if served >= MAX_GROUP or elapsed > MAX_GROUP_SECONDS:
            return None
        try:
            following = self._requests.get_nowait()
        except Empty:
            return None
        if following is None:
            self._requests.put(None)  # The closing mark, for the outer loop.
        return following

    def _run_request(self, request: Request, group: list[Request], *, undo: str) -> None:
        if request.future.cancelled():
            return
        group.append(request)
        transaction = Transaction(self._connection, self._clock.now())
        try:
            request.result = request.work(transaction)
            request.wakes = transaction.wakes
        except BaseException as error:
            request.error = translated(error, self.path)
            if not self._connection.in_transaction:
                raise  # SQLite has rolled back the whole group, e.g. on a full disk.
            self._connection.execute(undo)

    def _leave_gap(self) -> None:
        """Sleep until the file has been unlocked for its share of the time; see GAP_SHARE.

        Within the file lock, so that the gap is left to programs that do not use it.
        """
        now = time.perf_counter()
        owed = self._gap_owed - (now - self._unlocked_at)
        self._gap_owed = min(max(owed, -MAX_GAP_SECONDS), MAX_GAP_SECONDS)
        self._unlocked_at = now
        if self._gap_owed > MIN_GAP_SECONDS:
            time.sleep(self._gap_owed)
            self._gap_owed = 0.0

    def _fail(self, group: list[Request], error: BaseException) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # The next BEGIN will fail with the cause.
                self._connection.execute("ROLLBACK")
        for request in group:
            request.error = translated(error, self.path)
        deliver(group)
