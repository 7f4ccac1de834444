"""The write-ahead log of a file that only one process uses, and may lose: which pages a commit changed."""

import os
import sqlite3
import struct
from pathlib import Path

from ....errors import StoreError
from .open import add_functions

PAGE_BYTES = 4096

_HEADER_BYTES = 32
_FRAME_BYTES = PAGE_BYTES + 24
_INDEX = struct.Struct("=12xBxHII8x8s")
"""The head of the -shm file (sqlite.org/walformat.html): whether it is initialised, the size of a page, the
last valid frame, the number of pages, two checksums, two salts."""


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that may be lost: nothing is synced, and only we checkpoint.

    SQLite's WAL-reset bug (decision 0002) needs a checkpoint beside a writer on another connection; here only
    the writer's connection makes checkpoints.
    """
    connection = sqlite3.connect(
        path, timeout=10, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    for pragma in ("journal_mode=WAL", "synchronous=OFF", "wal_autocheckpoint=0", "cache_size=-64000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("PRAGMA temp_store=MEMORY")
    add_functions(connection)
    return connection


class Wal:
    """Reads the frames that commits append.

    The files stay open: to close a descriptor would release the locks that SQLite has on its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = os.open(f"{path}-wal", os.O_RDONLY)
        self._index = os.open(f"{path}-shm", os.O_RDONLY)
        self._salts = b""
        self.frames = 0  # taken so far

    def close(self) -> None:
        os.close(self._wal)
        os.close(self._index)

    def take(self) -> tuple[dict[int, bytes], int]:
        """Return the pages that were committed since the last call, and the number of pages of the file.

        Only frames that the index counts: beyond them are those of a transaction that was rolled back.
        """
        valid, size, salts = self._head()
        if salts != self._salts:  # The log was begun anew after a checkpoint.
            self._salts, self.frames = salts, 0
        wanted = (valid - self.frames) * _FRAME_BYTES
        if wanted <= 0:
            return {}, size
        data = self._read(wanted, _HEADER_BYTES + self.frames * _FRAME_BYTES)
        pages = {}
        for at in range(0, len(data), _FRAME_BYTES):
            (number,) = struct.unpack_from(">I", data, at)
            pages[number] = data[at + 24 : at + _FRAME_BYTES]
        self.frames = valid
        return pages, size

    def _read(self, wanted: int, at: int) -> bytes:
        data = b""
        while len(data) < wanted:
            more = os.pread(self._wal, wanted - len(data), at + len(data))
            if not more:
                raise StoreError(f"{self._path}-wal is shorter than its index says")
            data += more
        return data

    def _head(self) -> tuple[int, int, bytes]:
        is_ready, page, valid, size, salts = _INDEX.unpack(os.pread(self._index, _INDEX.size, 0))
        if not is_ready or (valid and page != PAGE_BYTES):
            raise StoreError(f"{self._path}-shm has an unknown format")
        return valid, size, salts


def checkpoint(connection: sqlite3.Connection) -> bool:
    """Write the committed pages into the file and empty the WAL; False if a reader prevents that now."""
    connection.execute("PRAGMA busy_timeout=0")
    try:
        busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.OperationalError:
        busy = 1
    finally:
        connection.execute("PRAGMA busy_timeout=10000")
    return not busy


def write_pages(file: int, pages: list[tuple[int, bytes]], size: int) -> None:
    """Write pages into a database file that no connection has open."""
    for number, page in pages:
        write_whole(file, page, (number - 1) * PAGE_BYTES)
    os.ftruncate(file, size * PAGE_BYTES)


def write_whole(file: int, data: bytes, at: int) -> None:
    """Write all of the data. A disk that gets full takes the beginning, and says so at the next call only."""
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
