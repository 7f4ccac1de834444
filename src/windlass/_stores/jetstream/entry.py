"""The entries of the log, and the rule that says which of them count."""

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec
import zstandard
from msgspec import Struct

from ..._model.brief import Brief
from ..sqlite.connection.wal import PAGE_BYTES
from .wire import UNREADABLE

MAX_PART_BYTES = 700_000
"""A commit that is packed into more is cut in parts: servers refuse messages above 1 MiB by default."""

FORMAT = 1
_NUMBER_BYTES = 4


class Kind(IntEnum):
    """What an entry does."""

    TAKE = 0  # its writer owns the store from here on
    PAGES = 1  # a commit, or a part of one: the pages it changed
    NOTHING = 2  # shows that its writer still owns the store
    SNAPSHOT = 3  # names a snapshot, which replaces the log up to a place before this
    LEAVE = 4  # its writer gives the store up: another may take it at once


class Base(Struct, frozen=True, array_like=True):
    """A snapshot: a name, and the place in the log whose state it has."""

    generation: str
    place: int
    epoch: int
    n: int


class Entry(Brief, Struct, array_like=True, frozen=True):
    """One message of the log.

    Fields are only ever added, at the end and with a default: what an older version cannot decode is void to
    it, and it would go on without. One that it decodes, but must not ignore, has a higher `format`.
    """

    kind: int
    epoch: int  # the place of the TAKE that began the reign of its writer
    n: int  # counts the entries of a reign, from 0, the TAKE
    owner: str
    now: int  # the store's clock, in microseconds
    is_last: bool = True  # of the parts of a commit
    size: int = 0  # of the file, in pages
    pages: bytes = b""  # with their numbers, packed; of a commit in parts, a part of that
    base: Base | None = None
    format: int = FORMAT


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Entry)
_VOID = Entry(Kind.NOTHING, 0, 0, "", 0)


def decode(data: bytes) -> Entry:
    """Decode an entry. A message of somebody else becomes an entry that never counts."""
    try:
        return _decoder.decode(data)
    except UNREADABLE:
        return _VOID


class Chain:
    """Decides, place by place, which entries of a log count. All others are void, for every reader.

    A TAKE counts where it says that it is: then its writer had seen everything before it. Any other entry
    counts if it is the next one of the reign that the last TAKE began. The sequence number that a publish
    expects keeps most void entries out of the stream, but proves nothing: the leader of a stream compares it
    before the entry is replicated, and of two appends in flight the second can match by accident.
    """

    def __init__(self, place: int = 0, epoch: int = 0, n: int = 0) -> None:
        self.place = place  # of the last entry that was judged
        self.epoch = epoch
        self.n = n

    def accepts(self, place: int, entry: Entry) -> bool:
        """Judge the entry at the next place."""
        assert place > self.place
        self.place = place
        if takes(place, entry):
            self.epoch, self.n = place, 0
            return True
        if entry.kind != Kind.TAKE and entry.epoch == self.epoch and entry.n == self.n + 1:
            self.n = entry.n
            return True
        return False


def takes(place: int, entry: Entry) -> bool:
    """Whether this entry makes its writer the owner."""
    return entry.kind == Kind.TAKE and entry.epoch == place


def pack(pages: Mapping[int, bytes]) -> list[bytes]:
    """Return pages and their numbers as one or several parts."""
    numbers = sorted(pages)
    head = struct.pack(f">{len(numbers)}I", *numbers)
    packed = zstandard.compress(head + b"".join(pages[number] for number in numbers), 1)
    return [packed[at : at + MAX_PART_BYTES] for at in range(0, len(packed), MAX_PART_BYTES)]


def unpack(parts: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Return the pages of a commit with their numbers, from all of its parts."""
    data = zstandard.decompress(b"".join(parts))
    number = len(data) // (_NUMBER_BYTES + PAGE_BYTES)
    starts = range(number * _NUMBER_BYTES, len(data), PAGE_BYTES)
    pages = (data[at : at + PAGE_BYTES] for at in starts)
    return list(zip(struct.unpack_from(f">{number}I", data), pages, strict=True))
