"""A queue's settings, and how long finished tasks are kept."""

from datetime import datetime, timedelta

from msgspec import Struct

from ..errors import InvalidOption
from .state import State

STRICT_MS = 1 << 44
"""Head start of one priority level under strict order: five centuries, yet a rank fits 53 bits."""


MAX_STRIPES = 64


class Ordering(Struct, frozen=True, gc=False, kw_only=True):
    """How priority and waiting trade. `ageing`: a level is worth this much waiting; None is strict."""

    ageing: timedelta | None = None


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
    """

    name: str
    paused: bool = False
    ordering: Ordering = Ordering()
    retention: Retention | None = None  # None follows the keeper's own
    stripes: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.stripes, int) or not 1 <= self.stripes <= MAX_STRIPES:
            raise InvalidOption(f"a queue has 1 to {MAX_STRIPES} stripes, not {self.stripes!r}")
