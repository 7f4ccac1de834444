"""Ids made by this process: of tasks, and of the process itself.

Task ids are UUIDv7, made by the client, so that repeating an enqueue whose reply was lost is harmless. Those
made by one process rise strictly, also within a millisecond, so sorting by id is sorting by arrival.
"""

import os
import socket
import sys
import threading
import time
from pathlib import Path

_POOL_BYTES = 4096  # One system call buys randomness for 512 ids.


class _IdSource:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start afresh: a forked child must share neither its parent's randomness nor a lock held there."""
        self._lock = threading.Lock()
        self._pool = b""
        self._used = 0
        self._last = 0  # Unix milliseconds and a 12-bit counter, as one number.

    def next(self) -> str:
        """Make an id that sorts after every id this process made before."""
        with self._lock:
            if self._used >= len(self._pool):
                self._pool, self._used = os.urandom(_POOL_BYTES), 0
            noise = int.from_bytes(self._pool[self._used : self._used + 8], "big")
            self._used += 8
            timestamp = self._last = self._next_timestamp()
        return _uuid7(timestamp, noise)

    def several(self, number: int) -> list[str]:
        """Make several ids in rising order: quicker than one by one."""
        with self._lock:
            first = self._next_timestamp()
            self._last = first + number - 1
        noise = os.urandom(8 * number)
        return [_uuid7(first + n, int.from_bytes(noise[8 * n : 8 * n + 8], "big")) for n in range(number)]

    def _next_timestamp(self) -> int:
        # More than 4,096 ids in one millisecond run ahead of the clock rather than repeat.
        return max(self._last + 1, (time.time_ns() // 1_000_000) << 12)


def _uuid7(timestamp: int, noise: int) -> str:
    """48 bits of milliseconds, the version, 12 bits of counter, the variant, 62 bits of noise."""
    high = (timestamp >> 12) << 16 | 0x7000 | timestamp & 0xFFF
    digits = f"{high << 64 | 0x8000000000000000 | noise & 0x3FFFFFFFFFFFFFFF:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_source = _IdSource()
os.register_at_fork(after_in_child=_source.reset)
new_id, new_ids = _source.next, _source.several


def process_identity() -> str:
    """Name this process: program@host:pid. The program of `python -m package` is the package."""
    program = Path(sys.argv[0] if sys.argv and sys.argv[0] else "python")
    name = program.parent.name if program.name == "__main__.py" else program.name
    return f"{name}@{socket.gethostname()}:{os.getpid()}"
