"""Queue settings: ordering, fairness, windows, stripes, and the retention of finished tasks."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from ..errors import InvalidOption
from .state import State

STRICT_MS = 1 << 44
"""Head start of one priority under strict order: five centuries, and a rank still fits in 53 bits."""

MAX_AGEING = timedelta(days=366)
"""The ranks of queues with ageing and of queues in strict order are then far apart."""

MAX_STRIPES = 64
MAX_WINDOWS = 50
MINUTES_A_DAY = 24 * 60
MAX_WEIGHT = 100


class Level(StrEnum):
    """A level of priority: above 0, 0 or below 0."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


def level_of(priority: int) -> Level:
    """The level of a priority."""
    return Level.HIGH if priority > 0 else Level.LOW if priority < 0 else Level.MEDIUM


class Fairness(StrEnum):
    """How a queue chooses between its tenants."""

    FIFO = "fifo"  # it does not: tasks run in order of rank
    ROUND_ROBIN = "round_robin"  # tenants in turn, in proportion to their weights
    RANDOM = "random"  # at random, in proportion to the tasks each has waiting


class Ordering(Struct, frozen=True, gc=False, kw_only=True):
    """How priority and waiting time combine. One priority is worth `ageing` of waiting; None is strict order.

    `shares` guarantees levels a percentage of the picks while they have tasks waiting; what remains goes to
    the other levels, in order.
    """

    ageing: timedelta | None = None
    shares: dict[Level, int] = {}

    def __post_init__(self) -> None:
        if not self.shares:
            return
        if any(not isinstance(share, int) or not 1 <= share <= 99 for share in self.shares.values()):
            raise InvalidOption(f"each share must be from 1 to 99 percent, got {dict(self.shares)}")
        total = sum(self.shares.values())
        if len(self.shares) == len(Level) and total != 100:
            raise InvalidOption(f"the shares of all three levels must add up to 100 percent, got {total}")
        if len(self.shares) < len(Level) and total > 99:
            rest = ", ".join(level for level in Level if level not in self.shares)
            raise InvalidOption(
                f"shares of {total} percent leave nothing for {rest}; set all levels, or lower the shares"
            )


class Retention(Struct, frozen=True, gc=False, kw_only=True):
    """How long finished tasks are kept; None is for ever."""

    completed: timedelta | None = timedelta(days=7)
    cancelled: timedelta | None = timedelta(days=7)
    dead: timedelta | None = timedelta(days=14)

    def __post_init__(self) -> None:
        for name in ("completed", "cancelled", "dead"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
                raise InvalidOption(
                    f"retention of {name} tasks must be a timedelta of 0 or more, or None, got {value!r}"
                )

    def period(self, state: State) -> timedelta | None:
        """How long tasks that ended in this state are kept; None: for ever."""
        return {State.COMPLETED: self.completed, State.CANCELLED: self.cancelled, State.DEAD: self.dead}.get(
            state
        )

    def horizon(self, state: State, now: datetime) -> datetime | None:
        """Tasks that ended in this state before this instant may be pruned; None: never."""
        kept = self.period(state)
        try:
            return None if kept is None else now - kept
        except OverflowError:  # before year 1
            return None


class Window(Struct, frozen=True, gc=False, kw_only=True):
    """Hours of some days of the week in which tasks of a queue may start, by the wall clock of a zone.

    `opens` and `closes` are minutes after midnight. One that closes no later than it opens closes on the day
    after.
    """

    opens: int
    closes: int
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)  # 0 is Monday
    zone: str = "UTC"

    @property
    def ends(self) -> int:
        """Minutes from midnight of the day on which it opens until it closes."""
        return self.closes if self.closes > self.opens else self.closes + MINUTES_A_DAY

    def __post_init__(self) -> None:
        if not (0 <= self.opens < MINUTES_A_DAY and 0 <= self.closes <= MINUTES_A_DAY):
            raise InvalidOption(f"a window opens and closes between 0:00 and 24:00, got {self!r}")
        if self.opens == self.closes:
            raise InvalidOption("a window must not close at the time it opens; 00:00-24:00 is the whole day")
        if not self.days or not set(self.days) <= set(range(7)):
            raise InvalidOption(f"the days of a window are 0 (Monday) to 6 (Sunday), got {self.days}")


class QueueSettings(Struct, frozen=True, gc=False, kw_only=True):
    """The settings of a queue. A queue without stored settings has these defaults.

    With several `stripes`, order holds only within each stripe, so that many workers do not contend for
    the head of the queue. Stores that do not contend there ignore it.

    `weights` are picks for each turn of a tenant (Fairness.ROUND_ROBIN); the default is 1.

    With `windows`, tasks start only within them; running ones continue.
    """

    name: str
    paused: bool = False
    ordering: Ordering = Ordering()
    retention: Retention | None = None  # None: as each task's type has it
    stripes: int = 1
    fairness: Fairness = Fairness.FIFO
    weights: dict[str, int] = {}
    windows: tuple[Window, ...] = ()

    @property
    def is_laned(self) -> bool:
        """Whether its tasks are picked from lanes instead of in one order."""
        return self.fairness is not Fairness.FIFO or bool(self.ordering.shares)

    def __post_init__(self) -> None:
        if not isinstance(self.stripes, int) or not 1 <= self.stripes <= MAX_STRIPES:
            raise InvalidOption(
                f"stripes must be a whole number from 1 to {MAX_STRIPES}, got {self.stripes!r}"
            )
        if len(self.windows) > MAX_WINDOWS:
            raise InvalidOption(f"a queue has at most {MAX_WINDOWS} windows, got {len(self.windows)}")
        for tenant, weight in self.weights.items():
            if not isinstance(weight, int) or not 1 <= weight <= MAX_WEIGHT:
                raise InvalidOption(
                    f"the weight of tenant {tenant!r} must be from 1 to {MAX_WEIGHT}, got {weight!r}"
                )
        if self.weights and self.fairness is not Fairness.ROUND_ROBIN:
            raise InvalidOption(
                f"weights need round_robin fairness; queue {self.name!r} is {self.fairness.value}"
            )
        if self.stripes > 1 and self.is_laned:
            raise InvalidOption(f"queue {self.name!r} has lanes (fairness or shares); leave stripes at 1")
