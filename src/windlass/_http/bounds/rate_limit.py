"""Rate limits of API keys: requests, tasks and bytes a second, by token buckets."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import ceil, inf
from time import monotonic
from typing import Protocol, TypeAlias

from ..._model.key import ApiKey
from ..._model.task import NewTask
from ..._policy import rate as policy
from ..._policy.input.chain import decode_steps, number_of_steps
from ..._policy.input.quote import counted
from ..web.problems import Problem

MEASURES = ("requests", "tasks", "bytes")
"""What the rates of a key count, in the order of its buckets."""

Costs: TypeAlias = tuple[int, int, int]
"""What a request takes of each measure."""

Bucket: TypeAlias = list[float]
"""The buckets of one key, one of each measure; see `_policy/rate.py`."""

_MAX_BUCKETS = 1_000  # then full buckets are dropped: a missing bucket counts as full


class Buckets(Protocol):
    """Where buckets are kept."""

    def bucket(self, name: str) -> AbstractContextManager[Bucket]:
        """Lend the bucket of a key, to be read and changed within the context; raise 503 if it is not free.

        Read the clock only then: others may have had the bucket while this process waited for it.
        """


class LocalBuckets:
    """The buckets of a server that is one process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    @contextmanager
    def bucket(self, name: str) -> Iterator[Bucket]:
        """Lend the bucket of a key."""
        if name not in self._buckets:
            if len(self._buckets) >= _MAX_BUCKETS:
                now = self._clock()
                self._buckets = {one: kept for one, kept in self._buckets.items() if max(kept) > now}
            self._buckets[name] = [0.0] * len(MEASURES)
        yield self._buckets[name]


class RateLimiter:
    """Limits each key to its rates. `refused` is called with the measure that a request was refused for."""

    def __init__(
        self,
        buckets: Buckets | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        self._buckets = buckets or LocalBuckets(clock)
        self._clock = clock
        self._refused = refused

    def take_request(self, key: ApiKey | None) -> None:
        """Count a request; raise 429 if none is left."""
        if key is not None and key.rate is not None:
            self._take_or_refuse(key, (1, 0, 0))

    def take_work(self, key: ApiKey | None, batch: Sequence[NewTask]) -> None:
        """Count tasks to enqueue, all or none; raise 429 if that is too many now, 413 if it always is."""
        if key is not None and limits_work(key):
            self._take_or_refuse(key, _costs(batch))

    def take_first(self, key: ApiKey, batch: Sequence[NewTask], longest: float) -> tuple[int, float]:
        """Count as many of the first tasks as there is room for; return their number and 0.

        If there is room for none, return 0 and the seconds until there is; raise as `take_work` does if those
        are more than `longest`.
        """
        number = self._fitting(key, batch) or 1
        costs = _costs(batch[:number])
        waits = self._take(key, costs)
        if max(waits) > longest:
            raise self._refusal(key, costs, waits)
        return (0, max(waits)) if any(waits) else (number, 0.0)

    def headers(self, key: ApiKey | None) -> dict[str, str]:
        """Build the fields of draft-ietf-httpapi-ratelimit-headers: quota and window, what is left.

        Empty if the bucket is not free: the request has been decided already.
        """
        if key is None or not any(_rates(key)):
            return {}
        try:
            with self._buckets.bucket(key.name) as bucket:
                full_at, now = tuple(bucket), self._clock()
        except Problem:
            return {}
        policies, states = [], []
        for measure, rate, at in zip(MEASURES, _rates(key), full_at, strict=True):
            if rate is not None:
                quota, refill = int(policy.burst(rate)), ceil(policy.refill(at, rate, now))
                policies.append(f'"{measure}";q={quota};w={ceil(quota / rate)}')
                states.append(f'"{measure}";r={int(policy.left(at, rate, now))};t={refill}')
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}

    def _fitting(self, key: ApiKey, batch: Sequence[NewTask]) -> int:
        """Return how many of the first tasks there is room for now."""
        with self._buckets.bucket(key.name) as bucket:
            now = self._clock()
            room = [
                inf if rate is None else policy.left(full_at, rate, now)
                for full_at, rate in zip(bucket, _rates(key), strict=True)
            ]
        for number, task in enumerate(batch):
            room = [left - cost for left, cost in zip(room, _costs([task]), strict=True)]
            if min(room) < 0:
                return number
        return len(batch)

    def _take_or_refuse(self, key: ApiKey, costs: Costs) -> None:
        waits = self._take(key, costs)
        if any(waits):
            raise self._refusal(key, costs, waits)

    def _take(self, key: ApiKey, costs: Costs) -> list[float]:
        """Take the costs unless a bucket has too little; return the seconds until each has enough."""
        limited = [
            (n, rate, cost) for n, (rate, cost) in enumerate(zip(_rates(key), costs, strict=True)) if rate
        ]
        waits = [0.0] * len(MEASURES)
        with self._buckets.bucket(key.name) as bucket:
            now = self._clock()
            for n, rate, cost in limited:
                waits[n] = policy.wait(bucket[n], rate, cost, now) if cost else 0.0
            for n, rate, cost in limited:
                bucket[n] = policy.draw(bucket[n], rate, 0 if any(waits) else cost, now)
        return waits

    def _refusal(self, key: ApiKey, costs: Costs, waits: list[float]) -> Problem:
        longest = max(waits)
        n = waits.index(longest)
        measure, rate = MEASURES[n], _rates(key)[n] or 0.0
        if self._refused is not None:
            self._refused(measure)
        if longest == inf:
            most = int(policy.burst(rate))
            return Problem(
                "too-large",
                f"the request has {counted(costs[n], measure[:-1])}, and this key may enqueue at most "
                f"{most:,} at once; send less per request",
            )
        seconds = max(ceil(longest), 1)
        return Problem(
            "too-many-requests",
            f"this key is limited to {rate:,.10g} {measure} a second; retry in {seconds} s",
            headers={**self.headers(key), "Retry-After": str(seconds)},
        )


def limits_work(key: ApiKey) -> bool:
    """Tell whether a key has a rate of tasks or bytes."""
    return key.task_rate is not None or key.byte_rate is not None


def _costs(batch: Sequence[NewTask]) -> Costs:
    """Return what enqueueing these tasks takes: tasks with the steps that follow them, and their bytes."""
    steps = sum(number_of_steps(decode_steps(task.next)) for task in batch if task.next)
    size = sum(len(task.payload) + len(task.next or b"") for task in batch)
    return 0, len(batch) + steps, size


def _rates(key: ApiKey) -> tuple[float | None, float | None, float | None]:
    return key.rate, key.task_rate, key.byte_rate
