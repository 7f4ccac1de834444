"""Rate limits of API keys: one token bucket per key, in each server process."""

from collections.abc import Callable
from math import ceil
from time import monotonic

from msgspec import Struct

from .._model.key import ApiKey
from .web.problems import Problem

_MAX_BUCKETS = 1_000  # then full buckets are dropped: a missing bucket counts as full
_ROUNDING = 1e-6  # so that inexact sums of fractions do not cost a request


class Bucket(Struct):
    """Requests `left` at the time `at`; without requests it is full again at `full_at`."""

    left: float
    at: float
    full_at: float


class RateLimiter:
    """Limits each key to its rate, with a burst of one second's worth of requests."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def take(self, key: ApiKey | None) -> dict[str, str]:
        """Count a request and return the RateLimit headers; raise 429 if none is left."""
        if key is None or key.rate is None:
            return {}
        rate, burst, now = key.rate, max(key.rate, 1.0), self._clock()
        bucket = self._bucket(key.name, burst, now)
        left = min(bucket.left + (now - bucket.at) * rate, burst) + _ROUNDING
        if left < 1:
            seconds = max(ceil((1 - left) / rate), 1)
            raise Problem(
                "too-many-requests",
                f"this key is limited to {rate:g} requests a second; retry in {seconds} s",
                headers={**_headers(rate, 0, seconds), "Retry-After": str(seconds)},
            )
        bucket.left, bucket.at = left - 1 - _ROUNDING, now
        bucket.full_at = now + (burst - bucket.left) / rate
        return _headers(rate, int(left - 1), ceil((burst - bucket.left) / rate - _ROUNDING))

    def _bucket(self, name: str, burst: float, now: float) -> Bucket:
        if name not in self._buckets:
            if len(self._buckets) >= _MAX_BUCKETS:
                self._buckets = {one: kept for one, kept in self._buckets.items() if kept.full_at > now}
            self._buckets[name] = Bucket(burst, now, now)
        return self._buckets[name]


def _headers(rate: float, left: int, seconds: int) -> dict[str, str]:
    """Build the fields of draft-ietf-httpapi-ratelimit-headers: quota, window and what is left."""
    quota = int(max(rate, 1))
    return {
        "RateLimit-Policy": f'"key";q={quota};w={ceil(quota / rate)}',
        "RateLimit": f'"key";r={left};t={seconds}',
    }
