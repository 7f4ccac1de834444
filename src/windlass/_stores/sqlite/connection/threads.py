"""Two threads with a connection each: one writes, in groups that share a commit, and one reads."""

import asyncio
import logging
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ...._store.clock import Clock
from ....errors import StoreError, StoreUnavailable
from ...forks import never_free
from ..read.find import Reader
from ..transaction import Transaction
from .commits import Commits, Group, Request, deliver
from .errors import translated
from .open import check_in_place

P = TypeVar("P")
R = TypeVar("R")

logger = logging.getLogger("windlass.store")

DEADLINE_SECONDS = 30.0
"""How long a request may take, waiting included, before it fails with StoreUnavailable."""

MAX_GROUP = 1000
MAX_GROUP_SECONDS = 0.02
"""A group takes no further requests after this time, which bounds the wait for its commit."""


class StoreThread(ABC, Generic[P]):
    """A thread with a connection of its own that serves requests in order, from any thread and event loop.

    It starts at once and connects; `ready` is done when it has, or has the error.
    """

    def __init__(self, path: Path, name: str, connect: Callable[[Path], sqlite3.Connection]) -> None:
        self.connect = connect
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

    def leave_to_parent(self) -> None:
        """In a forked child: leave the connection to the parent; even closing the copy would harm it."""
        connection: sqlite3.Connection | None = getattr(self, "_connection", None)
        if connection is not None:  # Unset if the fork came before the thread connected.
            never_free(connection)

    def _run(self) -> None:
        try:
            self._connection = self._connect()
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

    def _connect(self) -> sqlite3.Connection:
        return self.connect(self.path)

    @abstractmethod
    def _open(self) -> None:
        """Prepare the new connection."""

    def _close_connection(self) -> None:
        self._connection.close()

    @abstractmethod
    def _serve(self, request: Request) -> None:
        """Carry out a request."""


def closed(path: Path) -> StoreError:
    """Return the error for use of a closed store."""
    return StoreError(f"the store on {path} is closed; open it again to use it")


def uncancellable() -> "Future[Any]":
    """Return a future that is not cancelled when a waiting caller is."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


class ReaderThread(StoreThread[Reader]):
    """Serves reads one by one, from a file that a writer has open."""

    def _connect(self) -> sqlite3.Connection:
        check_in_place(self.path)
        return super()._connect()

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
    """Serves writes in groups: one transaction and one commit for all requests that arrived meanwhile."""

    def __init__(self, path: Path, clock: Clock, commits: Commits) -> None:
        self._clock = clock
        self._commits = commits
        super().__init__(path, "write", commits.connect)

    def _open(self) -> None:
        try:
            self._commits.open(self.path, self._connection)
        except BaseException:
            self._close_connection()
            raise

    def _close_connection(self) -> None:
        super()._close_connection()
        self._commits.close()

    def leave_to_parent(self) -> None:
        """In a forked child: close the lock files, and leave the connection to the parent."""
        self._commits.close()
        super().leave_to_parent()

    # -- groups --------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> None:
        group = Group()
        try:
            with self._commits.turn():
                began = time.perf_counter()
                self._commits.begin(self.path, self._connection)
                self._serve_group(request, group.requests, began)
                self._commits.commit(self._connection, group)
        except BaseException as error:  # noqa: BLE001 - passed on to the callers
            if not group.is_committed:  # A failure after the commit is left to the next request.
                self._fail(group.requests or [request], error)

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

    def _fail(self, group: list[Request], error: BaseException) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # The next BEGIN will fail with the cause.
                self._connection.execute("ROLLBACK")
        for request in group:
            request.error = translated(error, self.path)
        deliver(group)
