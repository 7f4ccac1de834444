"""What requests in progress hold: their key's places, streams, and memory for bodies. All of it is bounded.

One key cannot take everything: beyond its share it gets 429, and beyond that of all keys everyone gets 503.
Heartbeats and settlements are exempt, so that no worker loses its tasks over another client's requests.
"""

from collections import Counter

from msgspec import Struct
from starlette.requests import Request

from .web.problems import Problem

MAX_BODY_BYTES = 128 << 20
"""Memory for the bodies of all requests in progress; urgent ones may take half as much again."""

SMALL_BODY = 64 << 10
"""Bytes of each body that are not counted: small requests always pass."""


class LoadLimits(Struct, frozen=True, kw_only=True):
    """How many requests and streams (long polls included) may be in progress: for one key, and in all."""

    requests_per_key: int = 500
    streams_per_key: int = 250
    streams: int = 750


def load_limits(connections: int, streams_per_key: int | None = None) -> LoadLimits:
    """Return the limits of a server with this many connections: a key may use half of them for requests.

    Streams may use three quarters of them, those of one key a quarter unless given.
    """
    return LoadLimits(
        requests_per_key=max(connections // 2, 1),
        streams_per_key=max(connections // 4, 1) if streams_per_key is None else streams_per_key,
        streams=max(connections * 3 // 4, 1),
    )


class Load:
    """What the requests of a server hold together."""

    def __init__(self, limits: LoadLimits | None = None) -> None:
        self.limits = limits or LoadLimits()
        self.requests = Counter[str]()
        self.streams = Counter[str]()
        self.body_bytes = 0


class Held:
    """What one request holds; `release` gives all of it back."""

    __slots__ = ("_body_bytes", "_is_stream", "_is_urgent", "_key", "_load")

    def __init__(self, load: Load) -> None:
        self._load = load
        self._key: str | None = None
        self._is_urgent = False
        self._is_stream = False
        self._body_bytes = 0

    def begin(self, key: str, *, urgent: bool) -> None:
        """Count a request of this key; raise 429 if too many are in progress, unless it is urgent."""
        requests, most = self._load.requests, self._load.limits.requests_per_key
        if requests[key] >= most and not urgent:
            raise Problem("too-many-requests", f"this key has {most:,} requests in progress, the maximum")
        requests[key] += 1
        self._key = key
        self._is_urgent = urgent

    def begin_stream(self) -> None:
        """Count the request as a stream; raise 429 or 503 if there are too many."""
        load, key = self._load, self._key or ""
        if load.streams[key] >= load.limits.streams_per_key:
            most = load.limits.streams_per_key
            raise Problem("too-many-requests", f"this key has {most:,} streams or long polls, the maximum")
        if load.streams.total() >= load.limits.streams:
            raise Problem("busy", "too many streams and long polls; retry")
        load.streams[key] += 1
        self._is_stream = True

    def hold_body(self, size: int) -> None:
        """Take memory for a body of this size so far; raise 503 if all bodies together are too large."""
        more = max(size - SMALL_BODY, 0) - self._body_bytes
        if more <= 0:
            return
        most = MAX_BODY_BYTES * 3 // 2 if self._is_urgent else MAX_BODY_BYTES
        if self._load.body_bytes + more > most:
            raise Problem("busy", "too many large bodies at once; retry")
        self._load.body_bytes += more
        self._body_bytes += more

    def release_body(self) -> None:
        """Give back the memory of the body."""
        self._load.body_bytes -= self._body_bytes
        self._body_bytes = 0

    def release(self) -> None:
        """Give back everything."""
        if self._body_bytes:
            self.release_body()
        if self._key is None:
            return
        _decrement(self._load.requests, self._key)
        if self._is_stream:
            _decrement(self._load.streams, self._key)


def held_by(request: Request) -> Held:
    """Return what a request holds."""
    held: Held = request.scope["windlass.held"]
    return held


def _decrement(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
