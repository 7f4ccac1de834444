"""A limit: how many may run at once, or start in a second, of what it applies to."""

from collections.abc import Iterable
from math import ceil

from msgspec import Struct

from ..errors import InvalidOption

COLUMNS = ("queue", "type", "tenant")
"""What a limit can be counted by without looking into the payload; any other `by` names a field of it."""

MAX_RUNNING = 1_000_000
MAX_RATE = 1_000_000.0
MAX_BURST = 1_000_000


class Limit(Struct, frozen=True, gc=False, kw_only=True):
    """A cap on running, a rate of starts, or both, for the tasks of this queue, type and tenant (None: any).

    With `by` each value of that column or payload field is counted for itself; without it they share one.
    Starts never exceed `burst` and, for each second, `rate` more.
    """

    name: str
    queue: str | None = None
    type: str | None = None
    tenant: str | None = None
    by: str | None = None
    running: int | None = None
    rate: float | None = None  # starts a second
    burst: int | None = None  # None: what a second's rate allows, and at least one

    def __post_init__(self) -> None:
        if self.running is None and self.rate is None:
            raise InvalidOption(f"the limit {self.name!r} limits nothing: give it running, rate or both")
        if self.running is not None and not 0 <= self.running <= MAX_RUNNING:
            raise InvalidOption(f"a limit lets 0 to {MAX_RUNNING:,} run at once, not {self.running:,}")
        if self.rate is not None and not 0 < self.rate <= MAX_RATE:
            raise InvalidOption(
                f"a rate is more than 0 and up to {MAX_RATE:,.0f} starts a second, not {self.rate:g}"
            )
        if self.burst is not None and (self.rate is None or not 1 <= self.burst <= MAX_BURST):
            raise InvalidOption(f"a burst is 1 to {MAX_BURST:,} starts, beside a rate; not {self.burst:,}")

    @property
    def capacity(self) -> int:
        """How many may start at once after a quiet time."""
        return max(ceil(self.rate or 0), 1) if self.burst is None else self.burst

    def used(self, usage: "Usage") -> float:
        """How much of it one value uses. 1 is all: nothing more may start. Beyond 1 it was lowered."""
        ratios = [0.0]
        if self.running is not None:
            ratios.append(usage.running / self.running if self.running else 1.0)
        if usage.tokens is not None:
            ratios.append(1 - usage.tokens / self.capacity)
        return max(ratios)

    def busiest(self, usages: "Iterable[Usage]") -> "list[Usage]":
        """Sort by how much of the limit each value uses, most first; then by tasks running, then by value."""
        return sorted(usages, key=lambda usage: (-self.used(usage), -usage.running, usage.value))


class Usage(Struct, frozen=True, gc=False, kw_only=True):
    """What of a limit is in use for one value of its `by`: those running, and the starts it has left.

    `name` is the limit's and the value's, as the store knows the pair.
    """

    name: str
    limit: str
    value: str
    running: int
    tokens: float | None = None  # None: the limit has no rate
