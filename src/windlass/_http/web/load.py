"""What requests in progress hold: their key's places, streams, and memory for bodies. All of it is bounded.

One key cannot take everything: beyond its share it gets 429, and beyond that of all keys everyone gets 503.
Heartbeats and settlements are exempt, so that no worker loses its tasks over another client's requests.
"""

from msgspec import Struct
from starlette.requests import Request

from .problems import Problem

MAX_BODY_BYTES = 128 << 20
"""Memory for the bodies of all requests in progress; urgent ones may take half as much again."""

MAX_RESPONSE_BYTES = 128 << 20
"""Memory for the pages that all clients together have not read yet."""

SMALL_BODY = 64 << 10
"""Bytes of each body and page that are not counted: small requests always pass."""


class LoadLimits(Struct, frozen=True, kw_only=True):
    """How many requests and streams (long polls included) may be in progress: for one key, and in all.

    `queues_per_tenant`: queues into which keys that are bound to a tenant may enqueue its tasks;
    `types_per_tenant`: types that these tasks may have; `queue_type_pairs_per_tenant`: pairs of both.
    """

    requests_per_key: int = 500
    streams_per_key: int = 250
    streams: int = 750
    queues_per_tenant: int = 10_000
    types_per_tenant: int = 10_000
    queue_type_pairs_per_tenant: int = 20_000


def load_limits(
    connections: int,
    streams_per_key: int | None = None,
    queues_per_tenant: int = LoadLimits().queues_per_tenant,
    types_per_tenant: int = LoadLimits().types_per_tenant,
    queue_type_pairs_per_tenant: int | None = None,
) -> LoadLimits:
    """Return the limits of a server with this many connections: a key may use half of them for requests.

    Streams may use three quarters of them, those of one key a quarter unless given. Pairs of queue and type
    may be twice as many as queues or types, unless given.
    """
    if queue_type_pairs_per_tenant is None:
        queue_type_pairs_per_tenant = 2 * max(queues_per_tenant, types_per_tenant)
    return LoadLimits(
        requests_per_key=max(connections // 2, 1),
        streams_per_key=max(connections // 4, 1) if streams_per_key is None else streams_per_key,
        streams=max(connections * 3 // 4, 1),
        queues_per_tenant=queues_per_tenant,
        types_per_tenant=types_per_tenant,
        queue_type_pairs_per_tenant=queue_type_pairs_per_tenant,
    )


class Load:
    """What the requests of a server hold together."""

    def __init__(self, limits: LoadLimits | None = None) -> None:
        self.limits = limits or LoadLimits()
        self.requests: dict[str, int] = {}  # of each key
        self.streams: dict[str, int] = {}
        self.body_bytes = 0
        self.response_bytes = 0


class Held:
    """What one request holds; `release` gives all of it back."""

    __slots__ = ("_body_bytes", "_is_urgent", "_key", "_load", "_response_bytes", "_streams")

    def __init__(self, load: Load) -> None:
        self._load = load
        self._key: str | None = None
        self._is_urgent = False
        self._streams = 0
        self._body_bytes = 0
        self._response_bytes = 0

    def begin(self, key: str, *, urgent: bool) -> None:
        """Count a request of this key; raise 429 if too many are in progress, unless it is urgent."""
        load = self._load
        number = load.requests.get(key, 0)
        if number >= load.limits.requests_per_key and not urgent:
            most = load.limits.requests_per_key
            raise Problem("too-many-requests", f"this key has {most:,} requests in progress, the maximum")
        load.requests[key] = number + 1
        self._key = key
        self._is_urgent = urgent

    def begin_stream(self, size: int = 0) -> None:
        """Count the request as a stream that keeps `size` bytes; raise 429 or 503 if there are too many.

        A stream that keeps much counts as several.
        """
        load, key = self._load, self._key or ""
        most = load.limits.streams_per_key
        number = min(1 + size // SMALL_BODY, most)
        own = load.streams.get(key, 0)
        if own + number > most:
            raise Problem("too-many-requests", f"this key has {most:,} streams or long polls, the maximum")
        if sum(load.streams.values()) + number > load.limits.streams:
            raise Problem("busy", "too many streams and long polls; retry")
        load.streams[key] = own + number
        self._streams += number

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

    def hold_response(self, size: int) -> None:
        """Take memory for a page; raise 503 if the pages that clients have not read are too large."""
        more = max(size - SMALL_BODY, 0)
        if more and self._load.response_bytes + more > MAX_RESPONSE_BYTES:
            raise Problem("busy", "too many large responses at once; retry, or ask for smaller pages")
        self._load.response_bytes += more
        self._response_bytes += more

    def release_body(self) -> None:
        """Give back the memory of the body."""
        self._load.body_bytes -= self._body_bytes
        self._body_bytes = 0

    def release(self) -> None:
        """Give back everything."""
        load, key = self._load, self._key
        if self._body_bytes or self._response_bytes:
            self.release_body()
            load.response_bytes -= self._response_bytes
        if key is not None:
            _subtract(load.requests, key, 1)
            if self._streams:
                _subtract(load.streams, key, self._streams)


def held_by(request: Request) -> Held:
    """Return what a request holds."""
    held: Held = request.scope["windlass.held"]
    return held


def _subtract(counts: dict[str, int], key: str, number: int) -> None:
    left = counts.pop(key) - number
    if left:
        counts[key] = left
