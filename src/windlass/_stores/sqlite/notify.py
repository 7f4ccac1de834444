"""Wakes: hints go straight to listeners of the same handle, and through FIFOs to those of other processes.

The FIFOs lie in a folder beside the database, one for each listener. One byte says that something is ready,
another that something was scheduled. Hints may get lost, so every listener also looks now and then by itself
whether the file has changed; that is also how it hears of a commit of the caller's own.
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

from msgspec import Struct

from ..._store.protocol import Wake
from ..._timers import Timer
from ...errors import StoreError
from .connection.file_lock import like_database
from .read.find import Reader
from .transaction import Wakes

LOOK_SECONDS = 0.25

_BYTES = {Wake.READY: b"r", Wake.SCHEDULED: b"s"}
_MAX_READ = 65_536


class Sight(Struct, frozen=True, kw_only=True):
    """What a look at the file has shown."""

    version: int | None = None  # of the data: changes with every commit of another connection
    ready: bool = False
    next_due: int | None = None


def look(reader: Reader, queues: Sequence[str], seen: Sight) -> Sight:
    """Look again. Costs some ten microseconds if nobody has committed anything."""
    version = reader.data_version()
    if version == seen.version:
        return seen
    return Sight(version=version, ready=reader.has_ready(queues), next_due=reader.next_due())


class Switchboard:
    """The listeners of one handle, and the way to those of others."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._folder = database.with_name(database.name + "-wakes")
        self._listeners: list[Listener] = []

    def listen(self, queues: Sequence[str]) -> "Listener":
        """A listener in the running loop; it hears nothing before it is entered."""
        return Listener(self._database, self._folder, frozenset(queues), self._listeners)

    def tell(self, wakes: Wakes) -> None:
        """Pass on what a commit has brought. From any thread; never fails, for it is only a hint."""
        ready = bool(wakes.ready) or wakes.affects_all_queues
        hints = [Wake.READY] * ready + [Wake.SCHEDULED] * wakes.scheduled
        own = tuple(self._listeners)
        for listener in own:
            listener.hear(wakes)
        if not hints:
            return
        mine = {listener.name for listener in own}
        with suppress(OSError), _opened(self._folder) as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - of a descriptor
                if not name.startswith(".") and name not in mine:
                    _write(folder, name, b"".join(_BYTES[hint] for hint in hints))

    def leave_to_parent(self) -> None:
        """In a forked child: close its copies of the FIFOs, lest they outlive their listeners."""
        for listener in self._listeners:
            listener.leave_to_parent()


class Listener:
    """Collects hints for one `async for`, in the loop that runs it."""

    def __init__(
        self, database: Path, folder: Path, queues: frozenset[str], listeners: list["Listener"]
    ) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._database = database
        self._folder = folder
        self._queues = queues
        self._listeners = listeners
        self._loop = asyncio.get_running_loop()
        self._hints: set[Wake] = set()
        self._changed = asyncio.Event()
        self._fifo: int | None = None
        self._seen = Sight()
        self._later = Timer(lambda: self._note([Wake.READY]))
        self._entered = False
        self._look_at = 0.0  # the monotonic clock's time for the next look

    def __enter__(self) -> Self:
        self._entered = True
        self._listeners.append(self)
        self._make_fifo()
        return self

    def __exit__(self, *_: object) -> None:
        self._listeners.remove(self)
        self._entered = False
        self._later.cancel()
        if self._fifo is not None:
            self._loop.remove_reader(self._fifo)
            os.close(self._fifo)
            with suppress(OSError):  # Whoever next finds that nobody reads it may sweep it up.
                (self._folder / self.name).unlink()

    def leave_to_parent(self) -> None:
        """In a forked child: close its copy of the FIFO. The loop that watches it is the parent's."""
        if self._fifo is not None:
            os.close(self._fifo)
            self._fifo = None

    def hear(self, wakes: Wakes) -> None:
        """A commit of this handle has brought something; from any thread."""
        ready = wakes.affects_all_queues or not wakes.ready.isdisjoint(self._queues)
        hints = [Wake.READY] * ready + [Wake.SCHEDULED] * wakes.scheduled
        try:
            if hints:
                self._loop.call_soon_threadsafe(self._note, hints)
            if wakes.wait is not None:
                self._loop.call_soon_threadsafe(self._note_later, wakes.wait)
        except RuntimeError:
            return  # The loop has ended, and with it whoever listened.

    async def hints(self, ask: Callable[[Callable[[Reader], Sight]], Awaitable[Sight]]) -> list[Wake]:
        """Wait for hints. `ask` has a look done on the store's reading thread."""
        while True:
            # Also while hints keep coming: the one that was lost may be the other kind.
            if time.monotonic() >= self._look_at:
                await self._look(ask)
            if self._hints:
                break
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_at - time.monotonic()):
                    await self._changed.wait()
        wakes = sorted(self._hints)
        self._hints.clear()
        return wakes

    async def _look(self, ask: Callable[[Callable[[Reader], Sight]], Awaitable[Sight]]) -> None:
        # Not all processes at the same instant.
        self._look_at = time.monotonic() + LOOK_SECONDS * uniform(0.8, 1.2)
        seen = self._seen
        try:
            now = self._seen = await ask(lambda reader: look(reader, tuple(self._queues), seen))
        except StoreError:
            return  # Only a look: whoever claims will hear what is wrong.
        if now.version != seen.version and now.ready:
            self._note([Wake.READY])
        if now.next_due is not None and now.next_due != seen.next_due:
            self._note([Wake.SCHEDULED])
        if self._fifo is not None and not (self._folder / self.name).exists():
            self._loop.remove_reader(self._fifo)
            os.close(self._fifo)
            self._make_fifo()

    def _note(self, wakes: Sequence[Wake]) -> None:
        self._hints.update(wakes)
        self._changed.set()

    def _note_later(self, seconds: float) -> None:
        """Time alone will let more start. The first such time is enough: then a claim tells the next."""
        if self._entered:
            self._later.at(self._loop.time() + seconds)

    # -- the FIFO ------------------------------------------------------------------------------------

    def _make_fifo(self) -> None:
        """Open a FIFO and only then give it its name: one that has a name and no reader is a dead one's."""
        self._fifo = None
        unnamed = f".{self.name}"
        try:
            with suppress(FileExistsError):
                self._folder.mkdir()
            with _opened(self._folder) as folder:
                like_database(self._database, folder)
                try:
                    self._open_fifo(folder, unnamed)
                except (OSError, AttributeError, NotImplementedError):
                    self._drop_fifo(folder, unnamed)
        except OSError:
            return  # No FIFOs here, or no right to make one: looking now and then must do.

    def _open_fifo(self, folder: int, unnamed: str) -> None:
        os.mkfifo(unnamed, 0o600, dir_fd=folder)
        # Open for writing as well, so that the last writer's leaving is no end of file.
        self._fifo = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
        like_database(self._database, self._fifo)
        os.rename(unnamed, self.name, src_dir_fd=folder, dst_dir_fd=folder)
        self._loop.add_reader(self._fifo, self._drain)

    def _drop_fifo(self, folder: int, unnamed: str) -> None:
        if self._fifo is not None:
            os.close(self._fifo)
            self._fifo = None
        for name in (unnamed, self.name):
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)

    def _drain(self) -> None:
        assert self._fifo is not None
        data = os.read(self._fifo, _MAX_READ)
        self._note([wake for wake, byte in _BYTES.items() if byte in data])


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of the folder. Never through a link: it might lead to where others' files lie."""
    file = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        yield file
    finally:
        os.close(file)


def _write(folder: int, name: str, data: bytes) -> None:
    try:
        file = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENXIO:  # Nobody reads it: its listener has died.
            with suppress(OSError):  # Another may sweep it up, or has.
                os.unlink(name, dir_fd=folder)
        return
    try:
        if stat.S_ISFIFO(os.fstat(file).st_mode):  # Whatever else lies here is none of ours.
            os.write(file, data)
    except OSError:
        return  # Full, so plenty of hints wait already; or its reader has just gone.
    finally:
        os.close(file)
