"""Where the commits of a writer go, and when the requests of a commit are answered."""

import asyncio
import logging
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...._model.brief import Brief
from .. import schema
from ..transaction import Wakes, begin
from .errors import translated_errors
from .file_lock import FileLock
from .open import connect

logger = logging.getLogger("windlass.store")

GAP_SHARE = 0.25
MIN_GAP_SECONDS = 0.0001
MAX_GAP_SECONDS = 0.05
"""On average the file is left unlocked for this share of the time it was locked. Programs that do not use our
file lock only poll SQLite's; without a gap they would never get in. Idle time counts as gap, so that usually
little is left to sleep."""


class Request(Brief, Struct, eq=False):
    """Work for a thread, and the event loop that awaits its result."""

    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    wakes: Wakes | None = None


class Group(Struct, eq=False):
    """The requests that share a commit."""

    requests: list[Request] = []
    is_committed: bool = False

    def wakes(self) -> Wakes:
        """Return what the requests have made claimable or due."""
        merged = Wakes()
        for request in self.requests:
            if request.wakes is not None:
                merged.merge(request.wakes)
        return merged


class Commits(ABC):
    """Commits groups of requests of one writer thread. Every method is called on that thread."""

    @abstractmethod
    def connect(self, path: Path) -> sqlite3.Connection:
        """Open a connection of the writer or of a reader."""

    @abstractmethod
    def open(self, path: Path, connection: sqlite3.Connection) -> None:
        """Create or check the schema, before the first group."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[None]:
        """Wait until a group may begin; a group is served and committed within it."""

    @abstractmethod
    def begin(self, path: Path, connection: sqlite3.Connection) -> None:
        """Begin the transaction of a group."""

    @abstractmethod
    def commit(self, connection: sqlite3.Connection, group: Group) -> None:
        """Commit the group; answer its requests, and wake listeners, once it is durable.

        Sets `is_committed` when the transaction can no longer be rolled back.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held beside the connection."""


class FileCommits(Commits):
    """Commits to a file that other processes use, too: durable when COMMIT returns."""

    def __init__(self, wake: Callable[[Wakes], None]) -> None:
        self._wake = wake
        self._wake_failed = False
        self._wakes = Wakes()
        self._file_lock = FileLock()
        self._began = self._unlocked_at = self._gap_owed = 0.0

    def connect(self, path: Path) -> sqlite3.Connection:
        return connect(path)

    def open(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        with translated_errors(path):
            self._file_lock.open_beside(path)
            schema.ensure(schema.File(path, connection, self._file_lock))

    @contextmanager
    def turn(self) -> Iterator[None]:
        self._wakes = Wakes()
        with self._file_lock:
            self._leave_gap()
            yield
        if self._wakes:
            self._notify(self._wakes)

    def begin(self, path: Path, connection: sqlite3.Connection) -> None:
        self._began = time.perf_counter()
        begin(connection, path)

    def commit(self, connection: sqlite3.Connection, group: Group) -> None:
        if connection.in_transaction:  # Not if a single request failed and was rolled back.
            connection.execute("COMMIT")
        self._unlocked_at = time.perf_counter()
        self._gap_owed += GAP_SHARE * (self._unlocked_at - self._began)
        group.is_committed = True
        self._wakes = group.wakes()
        deliver(group.requests)
        if self._file_lock.has_waiters():
            self._leave_gap()

    def close(self) -> None:
        self._file_lock.close()

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

    def _notify(self, wakes: Wakes) -> None:
        try:
            self._wake(wakes)
        except Exception:  # Only a hint: listeners also poll.
            if not self._wake_failed:
                logger.warning(
                    "cannot notify the listeners on %s; they poll instead", self._path, exc_info=True
                )
            self._wake_failed = True


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
