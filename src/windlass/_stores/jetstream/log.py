"""Appends of an owner to the log: in order, several in flight, each of them known to stand or never to."""

import asyncio
import time
from collections.abc import Callable, Sequence

from .entry import Base, Entry, Kind, decode, encode, takes
from .stream import Log

_FIRST_PAUSE = 0.01
_LAST_PAUSE = 0.25
_MAX_IN_FLIGHT = 10  # beats are not added to so many: servers may be away for hours


class FencedError(Exception):
    """Another process owns the store now; what was in flight may stand or not, and must not be answered."""


class Appender:
    """The entries of one reign.

    An entry stands if it has the place right behind the one before it, void entries aside. What became of a
    publish whose acknowledgement was lost is read from the log; what is not there is published again.
    """

    def __init__(self, log: Log, *, place: int, owner: str, now: Callable[[], int]) -> None:
        self._log = log
        self._now = now
        self._owner = owner
        self.epoch = place  # of the TAKE, which must be the first append
        self.n = 0  # of the next entry
        self._void = 0  # entries of others among those of this reign, as far as is known
        self._appended_at = 0.0  # by the monotonic clock
        self._in_flight = 0
        self.log_bytes = 0  # appended so far
        self.tail: asyncio.Future[int] | None = None  # the place of the last entry, once it stands
        self.fenced: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def take(self) -> "asyncio.Future[int]":
        """Take the store over, if nothing was appended meanwhile."""
        return self._append(Entry(Kind.TAKE, self.epoch, self.n, self._owner, self._now()))

    def nothing(self) -> "asyncio.Future[int]":
        """Append an entry that only shows that this is still the owner."""
        return self._append(Entry(Kind.NOTHING, self.epoch, self.n, self._owner, self._now()))

    def leave(self) -> "asyncio.Future[int]":
        """Give the store up; nothing may be appended after it."""
        return self._append(Entry(Kind.LEAVE, self.epoch, self.n, self._owner, self._now()))

    def snapshot(self, base: Base) -> "asyncio.Future[int]":
        return self._append(Entry(Kind.SNAPSHOT, self.epoch, self.n, self._owner, self._now(), base=base))

    def commit(self, parts: Sequence[bytes], size: int) -> "asyncio.Future[int]":
        """Append a commit, whose pages are packed in parts; the future is done when all of it stands."""
        for number, part in enumerate(parts, 1):
            _ = self._append(
                Entry(
                    Kind.PAGES,
                    self.epoch,
                    self.n,
                    self._owner,
                    self._now(),
                    is_last=number == len(parts),
                    size=size,
                    pages=part,
                )
            )
        assert self.tail is not None
        return self.tail

    def beat(self, seconds: float) -> None:
        """Append an entry if there was none for so long.

        Also while others do not stand: if only their acknowledgements are lost, the log must not be silent.
        """
        if time.monotonic() - self._appended_at > seconds and self._in_flight < _MAX_IN_FLIGHT:
            _ = self.nothing()

    def fence(self, why: str) -> None:
        """End the reign: nothing is answered from here on."""
        if not self.fenced.done():
            self.fenced.set_result(why)

    def _append(self, entry: Entry) -> "asyncio.Future[int]":
        data = encode(entry)
        self.n += 1
        self.log_bytes += len(data)
        self._appended_at = time.monotonic()
        self._in_flight += 1
        self.tail = asyncio.ensure_future(self._stand(entry.n, data, self.tail))
        self.tail.add_done_callback(self._landed)
        return self.tail

    async def _stand(self, n: int, data: bytes, before: "asyncio.Future[int] | None") -> int:
        """Return the place of an entry once it stands. Raises FencedError if it never will."""
        stored = await self._publish(data, self.epoch + n + self._void)
        place = self.epoch if before is None else await asyncio.shield(before) + 1
        pause = _FIRST_PAUSE
        while stored != place:
            found = await self._read(place)
            if found is not None and (found.owner, found.epoch, found.n) == (self._owner, self.epoch, n):
                break
            if found is None:
                if await self._is_deleted(place):
                    self._lose(f"the log was deleted through place {place}")
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
                stored = await self._publish(data, place)
            elif n == 0 or takes(place, found):
                self._lose(f"{found.owner} has taken place {place}")
            else:
                place += 1  # It is void.
        self._void = place - self.epoch - n
        return place

    async def _publish(self, data: bytes, place: int) -> int | None:
        if self.fenced.done():
            raise FencedError(self.fenced.result())
        return await self._log.publish(data, place)

    async def _read(self, place: int) -> Entry | None:
        data = await self._log.read(place)
        return None if data is None else decode(data)

    async def _is_deleted(self, place: int) -> bool:
        extent = await self._log.extent()
        return extent is not None and extent.first > place

    def _lose(self, why: str) -> None:
        self.fence(why)
        raise FencedError(self.fenced.result())

    def _landed(self, entry: "asyncio.Future[int]") -> None:
        self._in_flight -= 1
        if not entry.cancelled():
            entry.exception()  # It is raised to those who wait, and to the owner by `fenced`.
