"""The open connections of a server: how many may be open, and which are closed to make room.

Whoever only holds a connection makes room for whoever uses one: with as many connections as may be open, the
next one takes the place of the oldest that has sent no request, is idle, or whose client does not read. Only
requests in progress can fill a server, and urgent ones (health, heartbeats, settlements) are admitted even
then.
"""

import logging
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from time import monotonic
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ..web.problems import Problem

logger = logging.getLogger("windlass.http")

RESERVED = 100
"""Places beyond the maximum, for connections whose request has not arrived and for urgent requests."""

UNREAD_SECONDS = 2.0
"""Time without progress in sending a response after which its connection may be closed to make room."""

MAX_UNREAD_BYTES = 128 << 20
"""Memory for responses that clients have not read; beyond, the one that has waited longest is given up."""

WORTH_RETURNING = 4 << 20
"""Bytes of such responses after which their memory is returned to the system once they are gone."""

WARN_SECONDS = 60.0
"""Minimum time between two log messages about refused requests."""


_OTHER_FILES = 128  # the store's, logs, sockets of a keeper


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """How many connections may have a request in progress; `per_address`: of one client address."""

    total: int = 1_000
    per_address: int | None = None  # none: behind a proxy all clients have its address


def affordable(limits: ConnectionLimits) -> ConnectionLimits:
    """Raise this process's limit of open files to what the connections need, or lower the limits to it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limits.total + RESERVED + _OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        total = max(hard - RESERVED - _OTHER_FILES, 1)
        logger.warning("this process may open %d files: at most %d connections are served", hard, total)
        limits, needed = replace(limits, total=total), hard
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return limits


class Place(IntEnum):
    """What a connection is doing, in the order in which connections are closed to make room."""

    UNUSED = 0
    IDLE = 1
    UNREAD = 2
    BUSY = 3


class Connection(Protocol):
    """A connection, as it is counted here."""

    address: str
    place: Place | None

    def evict(self) -> None:
        """Close it; there is no request in progress, or its client does not read the response."""


class Connections:
    """Counts connections, and makes room for new ones. `urgent`: paths that are admitted when it is full."""

    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        urgent: Iterable[bytes] = (),
        clock: Callable[[], float] = monotonic,
        return_memory: Callable[[], object] = lambda: None,
    ) -> None:
        self.limits = limits or ConnectionLimits()
        self._return_memory = return_memory
        self._urgent = frozenset(urgent)
        self._clock = clock
        self._places: list[dict[Connection, float]] = [{} for _ in Place]
        self._unread: dict[Connection, int] = {}  # bytes of responses
        self._unread_bytes = 0
        self._most_unread_bytes = 0  # since memory was last returned
        self._addresses = Counter[str]()
        self._refused = 0
        self._warned_at = -WARN_SECONDS

    def __len__(self) -> int:
        return sum(map(len, self._places))

    def add(self, one: Connection) -> None:
        """Count a new connection; close another one if there are too many."""
        one.place = Place.UNUSED
        self._places[Place.UNUSED][one] = self._clock()
        self._addresses[one.address] += 1
        if self._is_over(one.address):
            self._make_room(one, one.address)
        if len(self) > self.limits.total + RESERVED and not self._make_room(one):
            self._evict(one)

    def hold_unread(self, one: Connection, size: int) -> None:
        """Note that a client does not read a response; close those that wait longest if all are too large."""
        if one.place is None:
            return
        self.move(one, Place.UNREAD)
        self._unread[one] = size
        self._unread_bytes += size
        self._most_unread_bytes = max(self._most_unread_bytes, self._unread_bytes)
        while self._unread_bytes > MAX_UNREAD_BYTES and len(self._unread) > 1:
            self._evict(next(iter(self._unread)))

    def move(self, one: Connection, place: Place) -> None:
        """Note what a connection is doing now, unless it has been closed to make room."""
        was = one.place
        if was is not None and was is not place:
            self._release(one)
            del self._places[was][one]
            self._places[place][one] = self._clock()
            one.place = place

    def remove(self, one: Connection) -> None:
        """Stop counting a connection that is closed."""
        if one.place is None:
            return
        self._release(one)
        del self._places[one.place][one]
        one.place = None
        self._addresses[one.address] -= 1
        if not self._addresses[one.address]:
            del self._addresses[one.address]

    def refusal(self, one: Connection, path: bytes) -> Problem | None:
        """Return the problem to respond with if a request cannot be admitted now, else None."""
        if path in self._urgent:
            return None
        if len(self._places[Place.BUSY]) + len(self._places[Place.UNREAD]) >= self.limits.total:
            self._warn(f"{self.limits.total:,} requests are in progress (--max-connections)")
            return Problem("busy", "too many connections; retry", headers={"Retry-After": "1"})
        if self._is_over(one.address):
            limit = f"{self.limits.per_address:,} (--max-connections-per-address)"
            self._warn(f"{one.address} has more connections than {limit}; if it is a proxy, raise the limit")
            return Problem("too-many-requests", "too many connections from this address; close some")
        return None

    def _release(self, one: Connection) -> None:
        self._unread_bytes -= self._unread.pop(one, 0)
        if not self._unread and self._most_unread_bytes >= WORTH_RETURNING:
            self._most_unread_bytes = 0
            self._return_memory()

    def _is_over(self, address: str) -> bool:
        most = self.limits.per_address
        return most is not None and self._addresses[address] > most

    def _make_room(self, newest: Connection, address: str | None = None) -> bool:
        """Close the connection that is missed least, of this address if given; tell whether there is one."""
        for place in (Place.UNUSED, Place.IDLE, Place.UNREAD):
            for one, since in self._places[place].items():
                if place is Place.UNREAD and self._clock() - since < UNREAD_SECONDS:
                    break  # the others are younger
                if one is not newest and address in (None, one.address):
                    self._evict(one)
                    return True
        return False

    def _evict(self, one: Connection) -> None:
        self.remove(one)
        one.evict()

    def _warn(self, why: str) -> None:
        self._refused += 1
        if (now := self._clock()) - self._warned_at >= WARN_SECONDS:
            logger.warning("refused %d request(s): %s", self._refused, why)
            self._warned_at, self._refused = now, 0
