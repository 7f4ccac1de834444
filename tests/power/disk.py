"""A disk that loses power: what it had synced stays, of the rest something, in any order, perhaps torn."""

from collections.abc import Iterable
from pathlib import PurePath
from random import Random
from typing import TypeAlias

from msgspec import Struct

SECTOR = 512


class Opened(Struct, frozen=True, tag="opened"):
    """A file was opened, and made if there was none."""

    path: str


class Wrote(Struct, frozen=True, tag="wrote"):
    """Bytes were written, to the operating system's cache."""

    path: str
    offset: int
    data: bytes


class Truncated(Struct, frozen=True, tag="truncated"):
    """A file was cut to a size."""

    path: str
    size: int


class Synced(Struct, frozen=True, tag="synced"):
    """What was written to a file so far is on the disk."""

    path: str


class Deleted(Struct, frozen=True, tag="deleted"):
    """A file's name was removed."""

    path: str


class DirectorySynced(Struct, frozen=True, tag="directory"):
    """Names made and removed so far in a directory are on the disk."""

    path: str


Operation: TypeAlias = Opened | Wrote | Truncated | Synced | Deleted | DirectorySynced


class File:
    """One file beneath its name: what is on the disk, and what is still on its way."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[Wrote | Truncated] = []

    def sync(self) -> None:
        for operation in self.pending:
            _apply(self.durable, operation)
        self.pending.clear()

    def after_loss(self, random: Random) -> bytes:
        image = bytearray(self.durable)
        keep = random.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0))
        for operation in self.pending:
            if random.random() >= keep:
                _grow_only(image, operation, random)
            elif isinstance(operation, Wrote) and keep < 1 and random.random() < 0.3:
                for sector in _sectors(operation):
                    if random.random() < 0.5:
                        _apply(image, sector)
            else:
                _apply(image, operation)
        return bytes(image)


class Disk:
    """All files of a folder, as a sequence of operations leaves them."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._durable_names: dict[str, File] = {}
        self._pending_names: list[tuple[str, File | None]] = []

    def do(self, operation: Operation) -> None:
        """Let one more operation happen."""
        match operation:
            case Opened(path):
                if path not in self._files:
                    self._files[path] = File()
                    self._pending_names.append((path, self._files[path]))
            case Wrote(path) | Truncated(path):
                self._files[path].pending.append(operation)
            case Synced(path):
                self._files[path].sync()
            case Deleted(path):
                self._files.pop(path, None)
                self._pending_names.append((path, None))
            case DirectorySynced(path):
                self._sync_names(path)

    def after_loss(self, random: Random) -> dict[str, bytes]:
        """What is found when power is back, by path. The disk itself goes on as if nothing had happened."""
        names = dict(self._durable_names)
        keep = random.choice((0.0, 0.5, 1.0))
        for path, file in self._pending_names:
            if random.random() < keep:
                _name(names, path, file)
        return {path: file.after_loss(random) for path, file in names.items()}

    def _sync_names(self, directory: str) -> None:
        still = []
        for path, file in self._pending_names:
            if str(PurePath(path).parent) == directory:
                _name(self._durable_names, path, file)
            else:
                still.append((path, file))
        self._pending_names = still


def _name(names: dict[str, File], path: str, file: File | None) -> None:
    if file is None:
        names.pop(path, None)
    else:
        names[path] = file


def _apply(image: bytearray, operation: Wrote | Truncated) -> None:
    match operation:
        case Wrote(_, offset, data):
            if len(image) < offset:
                image.extend(bytes(offset - len(image)))
            image[offset : offset + len(data)] = data
        case Truncated(_, size):
            if len(image) < size:
                image.extend(bytes(size - len(image)))
            del image[size:]


def _grow_only(image: bytearray, operation: Wrote | Truncated, random: Random) -> None:
    """A lost write may have made the file longer all the same, with rubbish where its bytes should be."""
    if isinstance(operation, Wrote) and random.random() < 0.2:
        end = operation.offset + len(operation.data)
        if len(image) < end:
            image.extend(random.randbytes(end - len(image)))


def _sectors(operation: Wrote) -> Iterable[Wrote]:
    start, data = operation.offset, operation.data
    while data:
        size = SECTOR - start % SECTOR
        yield Wrote(operation.path, start, data[:size])
        start, data = start + size, data[size:]
