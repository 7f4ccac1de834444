"""Wakes: direct calls to listeners of the same handle, and FIFOs to those of other processes.

Each listener has a FIFO in a directory beside the database. One byte means that tasks are ready, another
that one was scheduled. Hints can get lost, so every listener also polls the file for changes; that is how it
notices commits on a caller's own connection, too.
"""

import asyncio
import errno
import os
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import uniform
from typing import Self

from ..._store.protocol import Wake
from ..._timers import Timer
from ...errors import StoreError
from .connection.file_lock import copy_permissions
from .read.find import Reader, Snapshot
from .transaction import Wakes

POLL_SECONDS = 0.25

_BYTES = {Wake.READY: b"r", Wake.SCHEDULED: b"s"}
_MAX_READ = 65_536


class WakeHub:
    """The listeners of one handle, and the way to those of other processes."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.folder = database.with_name(database.name + "-wakes")
        self.listeners: list[Listener] = []

    def listen(self, queues: Sequence[str]) -> "Listener":
        """Return a listener for the running event loop; it receives hints once it is entered."""
        return Listener(self, frozenset(queues))

    def notify(self, wakes: Wakes) -> None:
        """Notify all listeners of a commit. Thread-safe; a FIFO that fails is skipped."""
        ready = bool(wakes.ready) or wakes.affects_all_queues
        hints = [Wake.READY] * ready + [Wake.SCHEDULED] * wakes.scheduled
        own = tuple(self.listeners)
        for listener in own:
            listener.notify(wakes)
        if not hints:
            return
        mine = {listener.name for listener in own}
        with suppress(OSError), _opened(self.folder) as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - of a descriptor
                if not name.startswith(".") and name not in mine:
                    _write(folder, name, b"".join(_BYTES[hint] for hint in hints))

    def leave_to_parent(self) -> None:
        """In a forked child: close its copies of the FIFOs, which would outlive their listeners."""
        for listener in self.listeners:
            listener.leave_to_parent()


class Listener:
    """Collects hints for one `async for`, in its event loop."""

    def __init__(self, hub: WakeHub, queues: frozenset[str]) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._hub = hub
        self._queues = queues
        self._loop = asyncio.get_running_loop()
        self._hints: set[Wake] = set()
        self._changed = asyncio.Event()
        self._fifo: int | None = None
        self._seen = Snapshot()
        self._later = Timer(lambda: self._add([Wake.READY]))
        self._entered = False
        self._poll_at = 0.0  # when to poll next, by the monotonic clock

    def __enter__(self) -> Self:
        self._entered = True
        self._hub.listeners.append(self)
        self._make_fifo()
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.listeners.remove(self)
        self._entered = False
        self._later.cancel()
        if self._fifo is not None:
            self._loop.remove_reader(self._fifo)
            os.close(self._fifo)
            with suppress(OSError):  # The next writer that finds no reader deletes it.
                (self._hub.folder / self.name).unlink()

    def leave_to_parent(self) -> None:
        """In a forked child: close its copy of the FIFO; the event loop belongs to the parent."""
        if self._fifo is not None:
            os.close(self._fifo)
            self._fifo = None

    def notify(self, wakes: Wakes) -> None:
        """Take the wakes of a commit of this handle. Thread-safe."""
        ready = wakes.affects_all_queues or not wakes.ready.isdisjoint(self._queues)
        hints = [Wake.READY] * ready + [Wake.SCHEDULED] * wakes.scheduled
        try:
            if hints:
                self._loop.call_soon_threadsafe(self._add, hints)
            if wakes.wait is not None:
                self._loop.call_soon_threadsafe(self._add_later, wakes.wait)
        except RuntimeError:
            return  # The event loop is closed, so nothing listens.

    async def hints(self, read: Callable[[Callable[[Reader], Snapshot]], Awaitable[Snapshot]]) -> list[Wake]:
        """Wait for hints. `read` runs a poll on the reader thread."""
        while True:
            # Also while hints arrive: a lost one may be of the other kind.
            if time.monotonic() >= self._poll_at:
                await self._poll(read)
            if self._hints:
                break
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_at - time.monotonic()):
                    await self._changed.wait()
        wakes = sorted(self._hints)
        self._hints.clear()
        return wakes

    async def _poll(self, read: Callable[[Callable[[Reader], Snapshot]], Awaitable[Snapshot]]) -> None:
        # With jitter, so that processes do not poll at the same instant.
        self._poll_at = time.monotonic() + POLL_SECONDS * uniform(0.8, 1.2)
        seen = self._seen
        try:
            now = self._seen = await read(lambda reader: reader.poll(tuple(self._queues), seen))
        except StoreError:
            return  # The next claim will report the error.
        if now.version != seen.version and now.ready:
            self._add([Wake.READY])
        if now.next_due is not None and now.next_due != seen.next_due:
            self._add([Wake.SCHEDULED])
        if self._fifo is not None and not (self._hub.folder / self.name).exists():
            self._loop.remove_reader(self._fifo)
            os.close(self._fifo)
            self._make_fifo()

    def _add(self, wakes: Sequence[Wake]) -> None:
        self._hints.update(wakes)
        self._changed.set()

    def _add_later(self, seconds: float) -> None:
        """Wake after this time, when a rate limit lets more start; the claim that follows sets the next."""
        if self._entered:
            self._later.at(self._loop.time() + seconds)

    # -- the FIFO ------------------------------------------------------------------------------------

    def _make_fifo(self) -> None:
        """Open a FIFO before giving it its name: a named one without a reader belongs to a dead process."""
        self._fifo = None
        temporary = f".{self.name}"
        try:
            self._hub.folder.mkdir(exist_ok=True)
            with _opened(self._hub.folder) as folder:
                copy_permissions(self._hub.database, folder)
                try:
                    self._open_fifo(folder, temporary)
                except (OSError, AttributeError, NotImplementedError):
                    self._drop_fifo(folder, temporary)
        except OSError:
            return  # FIFOs are not supported or not permitted here: polling has to do.

    def _open_fifo(self, folder: int, temporary: str) -> None:
        os.mkfifo(temporary, 0o600, dir_fd=folder)
        # Open for writing as well, so that there is no end of file when the last writer closes it.
        self._fifo = os.open(temporary, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
        copy_permissions(self._hub.database, self._fifo)
        os.rename(temporary, self.name, src_dir_fd=folder, dst_dir_fd=folder)
        self._loop.add_reader(self._fifo, self._drain)

    def _drop_fifo(self, folder: int, temporary: str) -> None:
        if self._fifo is not None:
            os.close(self._fifo)
            self._fifo = None
        for name in (temporary, self.name):
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)

    def _drain(self) -> None:
        assert self._fifo is not None
        data = os.read(self._fifo, _MAX_READ)
        self._add([wake for wake, byte in _BYTES.items() if byte in data])


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a descriptor of the directory. Never follows a link, which could point anywhere."""
    file = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        yield file
    finally:
        os.close(file)


def _write(folder: int, name: str, data: bytes) -> None:
    try:
        file = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENXIO:  # No reader: its listener has died.
            with suppress(OSError):  # Another process may have deleted it.
                os.unlink(name, dir_fd=folder)
        return
    try:
        if stat.S_ISFIFO(os.fstat(file).st_mode):  # Write to nothing else.
            os.write(file, data)
    except OSError:
        return  # Full, so hints are pending already; or its reader has just gone.
    finally:
        os.close(file)
