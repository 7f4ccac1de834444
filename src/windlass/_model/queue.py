"""A queue's settings, and how long finished tasks are kept."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from ..errors import InvalidOption
from .state import State

STRICT_MS = 1 << 44
"""Head start of one priority level under strict order: five centuries, yet a rank fits 53 bits."""


MAX_STRIPES = 64
MAX_WEIGHT = 100


class Level(StrEnum):
    """A priority, seen from afar: above nought, nought, or below."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


def level_of(priority: int) -> Level:
    """The level that a priority belongs to."""
    return Level.HIGH if priority > 0 else Level.LOW if priority < 0 else Level.MEDIUM


class Fairness(StrEnum):
    """Whose turn it is among the tenants of a queue."""

    FIFO = "fifo"  # nobody's: the order is that of the tasks
    ROUND_ROBIN = "round_robin"  # everybody's in turn, as often as the tenant's weight says
    RANDOM = "random"  # drawn by lot; who has more waiting is drawn more often


class Ordering(Struct, frozen=True, gc=False, kw_only=True):
    """How priority and waiting trade. `ageing`: a level is worth this much waiting; None is strict.

    `shares` guarantees levels their percentage of the picks while they have tasks waiting; what remains goes
    to the levels not named, in order.
    """

    ageing: timedelta | None = None
    shares: dict[Level, int] = {}

    def __post_init__(self) -> None:
        if not self.shares:
            return
        if any(not isinstance(share, int) or not 1 <= share <= 99 for share in self.shares.values()):
            raise InvalidOption(f"a level's share is 1 to 99 percent, not {dict(self.shares)}")
        total = sum(self.shares.values())
        if len(self.shares) == len(Level) and total != 100:
            raise InvalidOption(f"the shares of all levels make 100 percent together, not {total}")
        if len(self.shares) < len(Level) and total > 99:
            rest = ", ".join(level for level in Level if level not in self.shares)
            raise InvalidOption(
                f"shares of {total} percent leave nothing to {rest}; name all levels, or leave room"
            )


class Retention(Struct, frozen=True, gc=False, kw_only=True):
    """How long the record of an ended task is kept; None is for ever."""

    completed: timedelta | None = timedelta(days=7)
    cancelled: timedelta | None = timedelta(days=7)
    dead: timedelta | None = timedelta(days=14)

    def __post_init__(self) -> None:
        for name in ("completed", "cancelled", "dead"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
                raise InvalidOption(f"retention of {name} tasks is a timedelta or None, not {value!r}")

    def horizon(self, state: State, now: datetime) -> datetime | None:
        """Tasks that ended so before this instant may go; None: never."""
        match state:
            case State.COMPLETED:
                kept = self.completed
            case State.CANCELLED:
                kept = self.cancelled
            case State.DEAD:
                kept = self.dead
            case _:
                return None
        try:
            return None if kept is None else now - kept
        except OverflowError:  # from before the first year: nothing is as old
            return None


class QueueSettings(Struct, frozen=True, gc=False, kw_only=True):
    """What the store knows about a queue. A queue without settings behaves like the default ones.

    With several `stripes`, order holds only within each, and many claimers do not meet at one end: for a
    queue that more workers share than a single order can serve. Stores that have no use for it ignore it.

    `weights` say how many turns a tenant has where the others have one (Fairness.ROUND_ROBIN).
    """

    name: str
    paused: bool = False
    ordering: Ordering = Ordering()
    retention: Retention | None = None  # None follows the keeper's own
    stripes: int = 1
    fairness: Fairness = Fairness.FIFO
    weights: dict[str, int] = {}

    @property
    def is_laned(self) -> bool:
        """Whether its tasks are picked from lanes, not off one line."""
        return self.fairness is not Fairness.FIFO or bool(self.ordering.shares)

    def __post_init__(self) -> None:
        if not isinstance(self.stripes, int) or not 1 <= self.stripes <= MAX_STRIPES:
            raise InvalidOption(f"a queue has 1 to {MAX_STRIPES} stripes, not {self.stripes!r}")
        for tenant, weight in self.weights.items():
            if not isinstance(weight, int) or not 1 <= weight <= MAX_WEIGHT:
                raise InvalidOption(f"the weight of tenant {tenant!r} is 1 to {MAX_WEIGHT}, not {weight!r}")
        if self.weights and self.fairness is not Fairness.ROUND_ROBIN:
            raise InvalidOption(f"weights are for round_robin; queue {self.name!r} is {self.fairness.value}")
        if self.stripes > 1 and self.is_laned:
            raise InvalidOption(f"queue {self.name!r} has lanes, which serve for stripes; leave stripes at 1")
