"""Task ids: UUIDv7, made by the client, so that repeating an enqueue whose reply was lost is harmless.

Ids made by one process rise strictly, also within a millisecond, so sorting by id is sorting by arrival.
"""

import os
import threading
import time

_POOL_BYTES = 4096  # One system call buys randomness for 512 ids.


class _Source:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start afresh: a forked child must share neither its parent's randomness nor a lock held there."""
        self._lock = threading.Lock()
        self._pool = b""
        self._used = 0
        self._moment = 0  # Unix milliseconds and a 12-bit counter, as one number.

    def next(self) -> str:
        with self._lock:
            if self._used >= len(self._pool):
                self._pool, self._used = os.urandom(_POOL_BYTES), 0
            noise = int.from_bytes(self._pool[self._used : self._used + 8], "big") & 0x3FFFFFFFFFFFFFFF
            self._used += 8
            # More than 4,096 ids in one millisecond run ahead of the clock rather than repeat.
            moment = self._moment = max(self._moment + 1, (time.time_ns() // 1_000_000) << 12)
        low = f"{noise | 0x8000000000000000:016x}"
        high = f"{moment >> 12:012x}"
        return f"{high[:8]}-{high[8:]}-7{moment & 0xFFF:03x}-{low[:4]}-{low[4:]}"


_source = _Source()
os.register_at_fork(after_in_child=_source.renew)


def new_id() -> str:
    """A fresh, never repeated id that sorts after every id this process made before."""
    return _source.next()
