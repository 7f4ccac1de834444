"""How often a key may ask: a bucket of requests for each, in each server. (I3)"""

from collections.abc import Callable
from math import ceil
from time import monotonic

from msgspec import Struct

from .._model.key import ApiKey
from .web.problems import Problem

_MANY = 1_000  # Buckets, before those that are full are thrown away: a full one says nothing.
_A_LITTLE = 1e-6  # Sums of fractions are not exact: nobody loses a request to that.


class Bucket(Struct):
    """How many requests are left, when that was so, and when it is full again if nobody asks."""

    left: float
    at: float
    full_at: float


class Pacing:
    """Lets each key ask at its own rate; a second's worth of requests may come at once."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def take(self, key: ApiKey | None) -> dict[str, str]:
        """Count a request: the headers that say how many are left; a Problem if none was."""
        if key is None or key.rate is None:
            return {}
        rate, burst, now = key.rate, max(key.rate, 1.0), self._clock()
        bucket = self._bucket(key.name, burst, now)
        left = min(bucket.left + (now - bucket.at) * rate, burst) + _A_LITTLE
        if left < 1:
            seconds = max(ceil((1 - left) / rate), 1)
            raise Problem(
                429,
                "too-many-requests",
                f"this key may ask {rate:g} times a second; wait {seconds} s",
                headers={**_headers(rate, 0, seconds), "Retry-After": str(seconds)},
            )
        bucket.left, bucket.at = left - 1 - _A_LITTLE, now
        bucket.full_at = now + (burst - bucket.left) / rate
        return _headers(rate, int(left - 1), ceil((burst - bucket.left) / rate - _A_LITTLE))

    def _bucket(self, name: str, burst: float, now: float) -> Bucket:
        if name not in self._buckets:
            if len(self._buckets) >= _MANY:
                self._buckets = {one: kept for one, kept in self._buckets.items() if kept.full_at > now}
            self._buckets[name] = Bucket(burst, now, now)
        return self._buckets[name]


def _headers(rate: float, left: int, seconds: int) -> dict[str, str]:
    """The fields of draft-ietf-httpapi-ratelimit-headers: the quota and its window, what is left of it."""
    quota = int(max(rate, 1))
    return {
        "RateLimit-Policy": f'"key";q={quota};w={ceil(quota / rate)}',
        "RateLimit": f'"key";r={left};t={seconds}',
    }
