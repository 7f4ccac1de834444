"""A standby's copy of the store: the log, played into a file."""

import asyncio
import os
import secrets
import sys
import time
from contextlib import aclosing, suppress
from enum import Enum, auto
from pathlib import Path
from shutil import rmtree

from ...errors import StoreError
from ..sqlite.connection.wal import write_pages
from .entry import FORMAT, Base, Chain, Entry, Kind, decode, unpack
from .snapshots import Manifest, Snapshots
from .stream import Log

if sys.platform != "win32":
    import fcntl

_COPY = "windlass-copy-"  # how the names of our folders begin: only these are ever deleted
_LOCK = "lock"  # a file beside each copy, locked while its process lives
_PAUSE = 0.05
UNREADABLE_SECONDS = 30.0
"""For this long a standby looks for a snapshot that can be read."""


class _State(Enum):
    BEHIND = auto()
    CURRENT = auto()
    GONE = auto()  # all was played, and its owner is gone
    DELETED = auto()  # what comes next was deleted: only a snapshot has it


class Follower:
    """Plays a log into a file of its own, from its beginning or from a snapshot."""

    def __init__(self, log: Log, snapshots: Snapshots, folder: Path) -> None:
        self._log = log
        self._snapshots = snapshots
        self._unreadable_since: float | None = None
        self._folder = folder
        self._place: Path | None = None
        self._file: int | None = None
        self._lock: int | None = None
        remove_leftovers(folder)
        self.begin()

    def begin(self, base: Base | None = None) -> None:
        """Begin anew with an empty file, under another name: the old one may be open still."""
        self.close()
        self._place = self._folder / f"{_COPY}{secrets.token_hex(6)}"
        self._place.mkdir(parents=True, mode=0o700)
        self._lock = _locked(self._place)
        self.path = self._place / "store.db"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        self.chain = Chain() if base is None else Chain(base.place, base.epoch, base.n)
        self.now = 0  # of the last entry that counted, in microseconds
        self.is_left = False  # whether the last owner has given the store up
        self.void = 0
        self._unconfirmed = base
        self._heard = time.monotonic()
        self._parts: list[bytes] = []

    @property
    def file(self) -> int:
        """The descriptor of the file."""
        assert self._file is not None
        return self._file

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            os.close(self._file)
        if self._place is not None:
            rmtree(self._place, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        self._file = self._place = self._lock = None

    # -- play ----------------------------------------------------------------------------------------

    def play(self, place: int, data: bytes) -> None:
        """Apply the entry at the next place, if it counts."""
        entry = decode(data)
        if not self.chain.accepts(place, entry):
            self.void += 1
            return
        if entry.format > FORMAT:
            raise StoreError(
                f"{entry.owner} writes the log in format {entry.format}, and this windlass knows {FORMAT}: "
                f"upgrade it"
            )
        self.now = max(self.now, entry.now)
        if entry.kind == Kind.TAKE:
            self._parts, self.is_left = [], False
        elif entry.kind == Kind.PAGES:
            self._apply(entry)
        elif entry.kind == Kind.LEAVE:
            self.is_left = True
        elif entry.kind == Kind.SNAPSHOT and entry.base == self._unconfirmed:
            self._unconfirmed = None

    def _apply(self, entry: Entry) -> None:
        self._parts.append(entry.pages)
        if entry.is_last:
            write_pages(self.file, unpack(self._parts), entry.size)
            self._parts = []

    # -- follow --------------------------------------------------------------------------------------

    async def follow(self, silence: float, usurp_after: float | None = None) -> None:
        """Play the log until its owner is gone: it has left, or was silent this long on a log that answers.

        `usurp_after` is for tests: return after this time although the owner is there.
        """
        self._heard = time.monotonic()
        usurp_at = None if usurp_after is None else self._heard + usurp_after
        if await self._state(silence) is _State.GONE:
            return  # Nobody has ever owned it, or the last owner has just left.
        while True:
            async with aclosing(self._log.entries(self.chain.place + 1)) as found:
                async for entries in found:
                    for place, data in entries:
                        self.play(place, data)
                    if entries:
                        self._heard = time.monotonic()
                    if usurp_at is not None and time.monotonic() > usurp_at and self._is_whole():
                        return
                    if entries and not self.is_left:
                        continue
                    state = await self._state(silence)
                    if state is _State.GONE:
                        return
                    if state is not _State.CURRENT and not entries:
                        break  # The server has more, and does not send it.
            if await self._state(silence) is _State.DELETED:
                await self._load_snapshot()
                self._heard = time.monotonic()
            await asyncio.sleep(_PAUSE)

    async def _state(self, silence: float) -> "_State":
        """Compare what was played with what the stream has."""
        extent = await self._log.extent()
        if extent is None:
            self._heard = time.monotonic()  # Its own silence is nobody's death.
            return _State.BEHIND
        if extent.first > self.chain.place + 1:
            return _State.DELETED
        if extent.last > self.chain.place:
            return _State.BEHIND
        if not self._is_whole():
            return _State.DELETED
        is_silent = time.monotonic() - self._heard > silence
        return _State.GONE if self.is_left or extent.last == 0 or is_silent else _State.CURRENT

    def _is_whole(self) -> bool:
        """Whether the snapshot that it began with has turned out to count."""
        return self._unconfirmed is None

    async def _load_snapshot(self) -> None:
        """Begin from the newest snapshot that is whole; of those that were never finished, each once.

        If none can be read, begin from nothing, so that the next call looks again: servers may be away, or a
        newer snapshot may just have replaced the one that was being read. Raises StoreError if that goes on.
        """
        tried = self._unconfirmed
        for manifest in await self._snapshots.manifests():
            if tried is not None and manifest.base.place >= tried.place:
                continue  # Newest first: go on behind the one that did not count.
            if await self._load(manifest):
                self._unreadable_since = None
                return
        self.begin()
        now = time.monotonic()
        self._unreadable_since = self._unreadable_since or now
        if now - self._unreadable_since > UNREADABLE_SECONDS:
            raise StoreError("the beginning of the log was deleted, and no snapshot of it can be read")

    async def _load(self, manifest: Manifest) -> bool:
        self.begin(manifest.base)
        if await self._snapshots.download(manifest, self.file):
            return True
        self.begin()
        return False


def remove_leftovers(folder: Path) -> None:
    """Delete the copies of processes that were killed: nobody holds their locks."""
    if sys.platform == "win32":  # No flock there.
        return
    for lock in folder.glob(f"{_COPY}*/{_LOCK}"):
        with suppress(OSError):
            file = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(file)


def _locked(place: Path) -> int:
    """Create the lock of a copy. It gets its name when it is held, so that nobody takes it for a leftover."""
    file = os.open(place / "new", os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (place / "new").rename(place / _LOCK)
    return file
