"""Limits: how many tasks may run at once or start in a second. Quotas: how much tenants may have stored."""

from collections.abc import Iterable
from math import ceil

from msgspec import Struct

from ..errors import InvalidOption
from .brief import Brief

COLUMNS = ("queue", "type", "tenant")
"""What a limit can be counted by without reading the payload; any other `by` names a payload field."""

HOST = ".host"
"""After the name of a field: counted by the host of the URL in it."""

MAX_RUNNING = 1_000_000
MAX_RATE = 1_000_000.0
MAX_BURST = 1_000_000
MAX_STORED_TASKS = 10**12
MAX_STORED_BYTES = 10**15

OTHERS = "*"
"""The name of the quota of every tenant that has no own one, and of tasks without a tenant."""


class Limit(Struct, frozen=True, gc=False, kw_only=True):
    """A cap on running tasks, a rate of starts, or both, for this queue, type and tenant (None: any).

    With `by`, each value of that column or payload field is counted separately, or each host of the URLs in
    the field ("url.host"); without it, all tasks share one count. The rate is a token bucket: in t seconds at
    most `burst + rate * t` tasks start.
    """

    name: str
    queue: str | None = None
    type: str | None = None
    tenant: str | None = None
    by: str | None = None
    running: int | None = None
    rate: float | None = None  # starts a second
    burst: int | None = None  # None: the rate rounded up, at least 1

    def __post_init__(self) -> None:
        if self.running is None and self.rate is None:
            raise InvalidOption(f"limit {self.name!r} needs running, rate or both")
        if self.running is not None and not 0 <= self.running <= MAX_RUNNING:
            raise InvalidOption(f"running must be from 0 to {MAX_RUNNING:,}, got {self.running:,}")
        if self.rate is not None and not 0 < self.rate <= MAX_RATE:
            raise InvalidOption(
                f"rate must be greater than 0 and at most {MAX_RATE:,.0f} starts a second, got {self.rate:g}"
            )
        if self.burst is not None and self.rate is None:
            raise InvalidOption(f"limit {self.name!r} has a burst but no rate; set rate or leave out burst")
        if self.burst is not None and not 1 <= self.burst <= MAX_BURST:
            raise InvalidOption(f"burst must be from 1 to {MAX_BURST:,} starts, got {self.burst:,}")

    @property
    def field(self) -> str | None:
        """The payload field that it is counted by; None if it reads no payload."""
        return None if self.by is None or self.by in COLUMNS else self.by.removesuffix(HOST)

    @property
    def is_metered(self) -> bool:
        """Whether the store keeps tokens for each value: starts left, which refill with time."""
        return self.rate is not None

    @property
    def capacity(self) -> int:
        """The number of tasks that may start at once when the bucket is full."""
        return max(ceil(self.rate or 0), 1) if self.burst is None else self.burst

    def used(self, usage: "Usage") -> float:
        """The fraction of the limit that one value uses: at 1 no more may start; above 1 it was lowered."""
        ratios = [0.0]
        if self.running is not None:
            ratios.append(usage.running / self.running if self.running else 1.0)
        if usage.tokens is not None:
            ratios.append(1 - usage.tokens / self.capacity)
        return max(ratios)

    def busiest(self, usages: "Iterable[Usage]") -> "list[Usage]":
        """Sort by how much of the limit each value uses, most first; then by tasks running, then by value."""
        return sorted(usages, key=lambda usage: (-self.used(usage), -usage.running, usage.value))


class Usage(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """What one value of a limit's `by` uses. `name` is the store's key for the pair of limit and value."""

    name: str
    limit: str
    value: str
    running: int
    tokens: float | None = None  # None: the limit has no rate


class Use(Struct, frozen=True, gc=False):
    """What a tenant has stored.

    `tasks` are all rows, ended ones included until they are pruned, and the steps that are yet to become
    tasks. `bytes` are those of payloads, results and following steps.
    """

    tasks: int = 0
    bytes: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(self.tasks + other.tasks, self.bytes + other.bytes)

    def __sub__(self, other: "Use") -> "Use":
        return Use(self.tasks - other.tasks, self.bytes - other.bytes)


class Quota(Struct, frozen=True, gc=False, kw_only=True):
    """How much a tenant may have stored; `name` is the tenant, or `OTHERS`. None: any number."""

    name: str
    tasks: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.tasks is None and self.bytes is None:
            raise InvalidOption(f"the quota of {self.name!r} needs tasks, bytes or both")
        for what, number, most in (
            ("tasks", self.tasks, MAX_STORED_TASKS),
            ("bytes", self.bytes, MAX_STORED_BYTES),
        ):
            if number is not None and not 0 <= number <= most:
                raise InvalidOption(f"{what} must be from 0 to {most:,}, got {number:,}")

    def share(self, use: Use) -> float:
        """The fraction of the quota that is used: at 1 no more may be stored; above 1 it was exceeded."""
        return max(_share(use.tasks, self.tasks), _share(use.bytes, self.bytes))

    def admits(self, use: Use, more: Use) -> bool:
        """Whether a tenant that uses `use` may store `more`."""
        total = use + more
        return (self.tasks is None or total.tasks <= self.tasks) and (
            self.bytes is None or total.bytes <= self.bytes
        )


def _share(used: int, most: int | None) -> float:
    if most is None:
        return 0.0
    return used / most if most else 1.0
