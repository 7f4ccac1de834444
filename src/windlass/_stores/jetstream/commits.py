"""Commits that go to the log: they are answered once their entry stands."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..sqlite import schema
from ..sqlite.connection.commits import Commits, Group, deliver
from ..sqlite.connection.errors import translated_errors
from ..sqlite.connection.file_lock import FileLock
from ..sqlite.connection.wal import Wal, checkpoint, connect
from ..sqlite.transaction import Wakes
from .entry import Base, pack
from .log import Appender, FencedError

CHECKPOINT_FRAMES = 16_000
MANY_PAGES = 500
"""Packed within some milliseconds."""
_RETRY_FRAMES = 4_000
_ROOM_SECONDS = 0.5


class LogCommits(Commits):
    """Commits to the owner's own file, and from there to the log; `depth` of them are in flight.

    The owner's file is ahead of the log by what is in flight. It is never used again once another process
    owns the store.
    """

    def __init__(self, appender: Appender, depth: int, wake: Callable[[Wakes], None]) -> None:
        self._appender = appender
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        self._depth = depth
        self._room = threading.Semaphore(depth)
        self._checkpoint_at = CHECKPOINT_FRAMES
        self._wal: Wal | None = None
        self._wanted: str | None = None
        self.frozen: Base | None = None
        self.is_frozen = False  # the file is being copied: no checkpoint may write to it

    def connect(self, path: Path) -> sqlite3.Connection:
        return connect(path)

    def open(self, path: Path, connection: sqlite3.Connection) -> None:
        """Create the schema, or migrate an older one: only owners know it, and standbys of old never take."""
        self._connection = connection
        with translated_errors(path):
            schema.ensure(schema.File(path, connection, FileLock()), migrate_old=True)
            connection.execute("BEGIN IMMEDIATE")  # Makes the files of the WAL, if nothing else did.
            connection.execute("COMMIT")
            self._wal = Wal(path)
            pages, size = self._wal.take()
        if pages:
            asyncio.run_coroutine_threadsafe(self._append(pack(pages), size), self._loop).result()

    @contextmanager
    def turn(self) -> Iterator[None]:
        self._take_room()
        try:
            if self._wanted is not None:
                self._freeze(self._wanted)
            yield
        except BaseException:
            self._room.release()
            raise

    def begin(self, path: Path, connection: sqlite3.Connection) -> None:  # noqa: ARG002  as others have it
        connection.execute("BEGIN IMMEDIATE")

    def commit(self, connection: sqlite3.Connection, group: Group) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")
        group.is_committed = True
        wal = self._wal
        try:
            assert wal is not None
            pages, size = wal.take()
            # On the event loop, beside the next group; not a large one, which would block that.
            parts = pack(pages) if len(pages) > MANY_PAGES else None
            self._loop.call_soon_threadsafe(self._ship, pages, parts, size, group)
        except BaseException as error:  # The file is ahead of the log now, and stays so.
            why = f"cannot read what was committed: {error!r}"
            self._loop.call_soon_threadsafe(self._appender.fence, why)
            raise
        if wal.frames > self._checkpoint_at and not self.is_frozen:
            done = checkpoint(connection)
            self._checkpoint_at = CHECKPOINT_FRAMES if done else wal.frames + _RETRY_FRAMES

    def close(self) -> None:
        if self._wal is not None:
            self._wal.close()

    # -- a copy of the file --------------------------------------------------------------------------

    def freeze_next(self, token: str) -> None:
        """Before the next group: make the file what the log says at one place, and keep it so.

        `frozen` is that place then, unless a reader prevents it; it stays so until `thaw`.
        """
        self._wanted, self.frozen = token, None

    def thaw(self) -> None:
        """Let the file change again."""
        self._wanted, self.is_frozen = None, False

    def _freeze(self, token: str) -> None:
        self._wanted = None
        for _ in range(self._depth - 1):  # Until nothing is in flight.
            self._take_room()
        try:
            if checkpoint(self._connection):
                self.is_frozen = True
                self.frozen = asyncio.run_coroutine_threadsafe(self._mark(token), self._loop).result()
        finally:
            for _ in range(self._depth - 1):
                self._room.release()

    async def _mark(self, token: str) -> Base:
        """Return the place of the last entry: every commit stands, and no other is on its way."""
        n, tail = self._appender.n - 1, self._appender.tail
        assert tail is not None
        place = await asyncio.shield(tail)
        return Base(f"{place}-{token}", place, self._appender.epoch, n)

    # -- the log -------------------------------------------------------------------------------------

    def _take_room(self) -> None:
        while not self._room.acquire(timeout=_ROOM_SECONDS):
            if self._appender.fenced.done():
                raise FencedError("another process owns the store")

    async def _append(self, parts: list[bytes], size: int) -> None:
        await asyncio.shield(self._appender.commit(parts, size))

    def _ship(self, pages: dict[int, bytes], parts: list[bytes] | None, size: int, group: Group) -> None:
        """Append a commit, or an entry that shows that its answers are still true. On the event loop."""
        if self._appender.fenced.done():
            self._settled(None, group)
            return
        if pages:
            standing = self._appender.commit(parts or pack(pages), size)
        elif all(request.result == [] and request.error is None for request in group.requests):
            self._answer(group)  # Claims that found nothing: a hint to wait, whoever owns the store.
            return
        else:
            standing = self._appender.nothing()
        standing.add_done_callback(lambda done: self._settled(done, group))

    def _settled(self, standing: "asyncio.Future[int] | None", group: Group) -> None:
        if standing is None or standing.cancelled() or standing.exception() is not None:
            for request in group.requests:
                request.error = FencedError("another process owns the store")
            self._answer(group, wake=False)
        else:
            self._answer(group)

    def _answer(self, group: Group, *, wake: bool = True) -> None:
        self._room.release()
        deliver(group.requests)
        wakes = group.wakes() if wake else None
        if wakes:
            self._wake(wakes)
