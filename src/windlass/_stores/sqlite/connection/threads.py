"""Threads that serve requests: one writes, in groups that share a commit, and one reads."""

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

from ...._clock import Clock
from ....errors import StoreError, StoreUnavailable
from .. import schema
from ..read.find import Reader
from ..transaction import Transaction, Wakes
from .errors import in_our_words, told
from .file_lock import Turnstile
from .open import begin, connect, never_free

P = TypeVar("P")
R = TypeVar("R")

logger = logging.getLogger("windlass.store")

DEADLINE_SECONDS = 30.0
"""How long a request may take, waiting for others included, before its caller is told to try again."""

MAX_GROUP = 1000
MAX_GROUP_SECONDS = 0.02
"""A group takes no further request after this long, so that nobody's commit waits for everybody's work."""

GAP_SHARE = 0.25
MIN_GAP_SECONDS = 0.0001
MAX_GAP_SECONDS = 0.05
"""On the average the file is left unlocked for this share of the time it was held. Programs that do not know
our turnstile only look now and then whether it is free; without a gap they would never get in. Time in which
nothing was asked for counts, so that mostly little is left to wait."""


class Request:
    """Work for a line's thread, and the loop that waits for its result."""

    __slots__ = ("error", "future", "loop", "result", "wakes", "work")

    def __init__(self, work: Callable[[Any], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.wakes: Wakes | None = None


class Line(Generic[P]):
    """A thread of its own with a connection of its own, that serves requests in order.

    Any thread and any event loop may ask. The thread starts at once and connects; `ready` says how that went.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.ready: Future[None] = uncancellable()
        self.path = path
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closing = False
        self._died: BaseException | None = None
        self._ended: Future[None] = uncancellable()
        self._thread = threading.Thread(target=self._live, name=f"windlass-{name}", daemon=True)
        self._thread.start()

    async def ask(self, work: Callable[[P], R]) -> R:
        """Have the work done and wait for its result. What is given up before its turn is not done."""
        request = Request(work, asyncio.get_running_loop())
        with self._lock:
            if self._closing:
                raise self._why_over()
            self._requests.put(request)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                result: R = await request.future
        except TimeoutError as error:
            raise StoreUnavailable(
                f"{self.path} was not to be had within {DEADLINE_SECONDS:.0f} s: look for a stopped or "
                f"hanging process that has {self.path.name}-lock open, or for a slow disk; what was asked "
                f"for may still be done, and asking again does no harm"
            ) from error
        return result

    def close(self) -> "Future[None]":
        """Serve what has been asked for, then end; the answer is done when the thread has ended."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._requests.put(None)
        return self._ended

    def join(self) -> None:
        """Wait for the thread's last breath, once it has said that it ends."""
        self._thread.join()

    @property
    def is_over(self) -> bool:
        """Whether it takes no more requests."""
        return self._closing

    def _why_over(self) -> BaseException:
        failed = self.ready.exception(0) if self.ready.done() else None
        return (
            self._died or failed or StoreError(f"the store on {self.path} is closed; open it again to use it")
        )

    def leave_to_parent(self) -> None:
        """In a forked child: the connection is the parent's, and even freeing it would do harm."""
        connection: sqlite3.Connection | None = getattr(self, "_connection", None)
        if connection is not None:  # The fork may have come before the thread had connected.
            never_free(connection)

    def _live(self) -> None:
        try:
            self._connection = connect(self.path)
            self._open()
        except BaseException as error:  # noqa: BLE001 - handed to whoever opens the store
            self._refuse(error)
            return
        self.ready.set_result(None)
        request: Request | None = None
        try:
            while (request := self._requests.get()) is not None:
                self._serve(request)
        except BaseException as error:  # noqa: BLE001 - a mistake of ours, of which those who wait must hear
            self._die(error, request)
        finally:
            with suppress(sqlite3.Error, OSError):
                self._shut()
            self._ended.set_result(None)

    def _die(self, error: BaseException, request: Request | None) -> None:
        """What must not happen: take no more, so that the next use makes a new line, and let nobody wait."""
        logger.critical("the thread that serves %s broke down", self.path, exc_info=error)
        self._died = StoreUnavailable(
            f"the thread that serves {self.path} broke down ({error!r}): what was asked for may have been "
            f"done, and asking again does no harm; try again"
        )
        self._died.__cause__ = error
        if request is not None:
            request.error = self._died
            deliver([request])
        self._turn_away(self._died)

    def _refuse(self, error: BaseException) -> None:
        """It could not be opened: say so to everybody who has asked already."""
        self.ready.set_exception(error)
        self._turn_away(error)
        self._ended.set_result(None)

    def _turn_away(self, error: BaseException) -> None:
        self.close()
        while (request := self._requests.get()) is not None:
            request.error = error
            deliver([request])

    def _open(self) -> None:
        raise NotImplementedError

    def _shut(self) -> None:
        raise NotImplementedError

    def _serve(self, request: Request) -> None:
        raise NotImplementedError


def uncancellable() -> "Future[Any]":
    """A future that a caller may stop waiting for without ending it."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def deliver(requests: list[Request]) -> None:
    """Hand results to the loops that wait, one call a loop. A loop that is gone waits for nothing."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Request]] = defaultdict(list)
    for request in requests:
        by_loop[request.loop].append(request)
    for loop, answered in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, answered)
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


class ReadLine(Line[Reader]):
    """Serves questions one by one, each in short reads of its own."""

    def _open(self) -> None:
        self._reader = Reader(self._connection)

    def _shut(self) -> None:
        self._connection.close()

    def _serve(self, request: Request) -> None:
        if request.future.cancelled():
            return
        try:
            request.result = request.work(self._reader)
        except BaseException as error:  # noqa: BLE001 - the caller's, whatever it is
            request.error = in_our_words(error, self.path)
        deliver([request])


class WriteLine(Line[Transaction]):
    """Serves writes in groups: one transaction and one sync for all that have come in meanwhile."""

    def __init__(self, path: Path, clock: Clock, wake: Callable[[Wakes], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._wake_failed = False
        self._freed_at = self._owed = 0.0
        self._turn = Turnstile()
        super().__init__(path, "write")

    def _open(self) -> None:
        try:
            with told(self.path):
                self._turn.open_beside(self.path)
                schema.ensure(schema.File(self.path, self._connection, self._turn))
        except BaseException:
            self._shut()
            raise

    def _shut(self) -> None:
        self._connection.close()
        self._turn.close()

    def leave_to_parent(self) -> None:
        """In a forked child: let go of the locks' files, and leave the connection to the parent."""
        self._turn.close()
        super().leave_to_parent()

    # -- groups --------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> None:
        group: list[Request] = []
        wakes = Wakes()
        stands = False
        try:
            with self._turn:
                self._leave_gap()
                began = time.perf_counter()
                begin(self._connection, self.path)
                self._serve_group(request, group, began)
                if self._connection.in_transaction:  # A single request that was refused has been rolled back.
                    self._connection.execute("COMMIT")
                self._freed_at = time.perf_counter()
                self._owed += GAP_SHARE * (self._freed_at - began)
                for done in group:
                    if done.wakes is not None:
                        wakes.merge(done.wakes)
                stands = True
                deliver(group)
                if self._turn.is_wanted():
                    self._leave_gap()
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            if not stands:  # What comes after the commit is not theirs: the next one will meet it.
                self._fail(group or [request], error)
        if wakes:
            self._tell(wakes)

    def _tell(self, wakes: Wakes) -> None:
        try:
            self._wake(wakes)
        except Exception:  # Only a hint: whoever listens also looks by himself.
            if not self._wake_failed:
                logger.warning(
                    "listeners on %s cannot be woken, and look by themselves", self.path, exc_info=True
                )
            self._wake_failed = True

    def _serve_group(self, request: Request, group: list[Request], began: float) -> None:
        """Do the request, and those that wait behind it."""
        if self._requests.empty():
            self._do(request, group, undo="ROLLBACK")
            return
        following: Request | None = request
        while following is not None:
            self._connection.execute("SAVEPOINT windlass_request")
            self._do(following, group, undo="ROLLBACK TO windlass_request")
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
            self._requests.put(None)  # The end of the line: for the outer loop to see.
        return following

    def _do(self, request: Request, group: list[Request], *, undo: str) -> None:
        if request.future.cancelled():
            return
        group.append(request)
        transaction = Transaction(self._connection, self._clock.now())
        try:
            request.result = request.work(transaction)
            request.wakes = transaction.wakes
        except BaseException as error:
            request.error = in_our_words(error, self.path)
            if not self._connection.in_transaction:
                raise  # A full disk, say: SQLite has undone the whole group.
            self._connection.execute(undo)

    def _leave_gap(self) -> None:
        """Sleep until the file has been free for its share of the time. Inside the turnstile, so that the gap
        is for programs that do not know it."""
        now = time.perf_counter()
        self._owed = min(max(self._owed - (now - self._freed_at), -MAX_GAP_SECONDS), MAX_GAP_SECONDS)
        self._freed_at = now
        if self._owed > MIN_GAP_SECONDS:
            time.sleep(self._owed)
            self._owed = 0.0

    def _fail(self, group: list[Request], error: BaseException) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # Then the next BEGIN will say what is wrong.
                self._connection.execute("ROLLBACK")
        for request in group:
            request.error = in_our_words(error, self.path)
        deliver(group)
