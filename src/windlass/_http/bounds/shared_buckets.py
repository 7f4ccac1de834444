"""Rate buckets that the processes of one server share: memory of a file that each has mapped.

Exact: all processes together let pass what one would. A process that is killed leaves no lock behind, and
what it has taken stays taken.
"""

import fcntl
import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from time import monotonic, sleep
from typing import IO

from ..web.problems import Problem
from .rate_limit import MEASURES, Bucket

_SETS = 4_096
_WAYS = 8  # buckets of a set; a key has a place in one set, found by its hash
_ID_BYTES = 16
_NUMBERS = len(MEASURES)
_IDS = _SETS * _WAYS * _ID_BYTES
_SIZE = _IDS + _SETS * _WAYS * _NUMBERS * 8

# Others hold a lock for microseconds, or for some turns of the scheduler if many processes are busy. Waiting
# blocks the event loop: so after one long wait in vain (the other was stopped), waits are short for a while.
_LOCK_SECONDS = 0.2
_SHORT_LOCK_SECONDS = 0.02
_SHORT_FOR_SECONDS = 1.0
_LOCK_STEP = 0.0005


def new_bucket_file() -> IO[bytes]:
    """Return the file of full buckets, without a name; children inherit its descriptor."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  its holder closes it
    file.truncate(_SIZE)
    return file


class SharedBuckets:
    """The buckets in a file of `new_bucket_file`, by its descriptor. For one thread of each process."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        self._short_until = 0.0
        memory = memoryview(mmap.mmap(descriptor, _SIZE))
        self._ids = memory[:_IDS]
        # One number is written at once: a process that is killed leaves no half of it.
        self._numbers = memory[_IDS:].cast("d")

    @contextmanager
    def bucket(self, name: str) -> Iterator[Bucket]:
        """Lend the bucket of a key; raise 503 if another process does not return it."""
        key = blake2b(name.encode(), digest_size=_ID_BYTES).digest()
        place = int.from_bytes(key[:4], "big") % _SETS
        self._lock(place)
        try:
            way, bucket = self._find(key, place * _WAYS)
            yield bucket
            self._ids[way * _ID_BYTES : (way + 1) * _ID_BYTES] = key
            for number, value in enumerate(bucket, way * _NUMBERS):
                self._numbers[number] = value
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def _find(self, key: bytes, first: int) -> tuple[int, Bucket]:
        """Return the place and the values of a bucket; that of a new one is the place of the fullest."""
        fullest, full_at = first, float("inf")
        for way in range(first, first + _WAYS):
            bucket: Bucket = [self._numbers[way * _NUMBERS + n] for n in range(_NUMBERS)]
            if self._ids[way * _ID_BYTES : (way + 1) * _ID_BYTES] == key:
                return way, bucket
            if (latest := max(bucket)) < full_at:
                fullest, full_at = way, latest
        return fullest, [0.0] * _NUMBERS

    def _lock(self, place: int) -> None:
        began = monotonic()
        until = began + (_SHORT_LOCK_SECONDS if began < self._short_until else _LOCK_SECONDS)
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                return
            except (BlockingIOError, PermissionError):
                if (now := monotonic()) > until:
                    if began >= self._short_until:
                        self._short_until = now + _SHORT_FOR_SECONDS
                    raise Problem("busy", "another server process is stalled; retry") from None
            sleep(_LOCK_STEP)
