"""Alerts on dead letters: the rule, its state and the notices it sends."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from ..errors import InvalidOption
from .brief import Brief
from .task import TaskId

MAX_COUNT = 1_000_000
HOLD = timedelta(minutes=5)


class Turn(StrEnum):
    """What a notice of an alert says."""

    RAISED = "raised"
    REMINDED = "reminded"  # it is still raised
    CLEARED = "cleared"


class Alert(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """Raised at `count` dead letters of this type and queue (None: any); cleared after fewer for `hold`."""

    name: str
    type: str | None = None
    queue: str | None = None
    count: int = 1
    window: timedelta | None = None  # None: however long ago they died
    hold: timedelta = HOLD
    webhook: str | None = None

    def __post_init__(self) -> None:
        if (
            isinstance(self.count, bool)
            or not isinstance(self.count, int)
            or not 1 <= self.count <= MAX_COUNT
        ):
            raise InvalidOption(
                f"the count of alert {self.name!r} must be a whole number from 1 to {MAX_COUNT:,}, "
                f"got {self.count!r}"
            )
        if self.window is not None and self.window <= timedelta(0):
            raise InvalidOption(
                f"the window of alert {self.name!r} must be greater than 0; leave it out to count all"
            )


class DeadLetter(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """A dead letter as a notice names it, without payload or error message: they may hold secrets."""

    id: TaskId
    type: str
    queue: str
    error: str = ""  # the error's type


class AlertNotice(Struct, frozen=True, gc=False, kw_only=True):
    """One notice of an alert and the state of its delivery. `id` is the same in every attempt to send it."""

    id: str
    turn: Turn
    number: int
    at: datetime
    raised_at: datetime
    letters: tuple[DeadLetter, ...] = ()
    tries: int = 0
    due_at: datetime | None = None  # earliest time of the next attempt to send it


class AlertState(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """The state of an alert: since when it is raised, the last notice, and the notices not yet sent."""

    name: str
    raised_at: datetime | None = None
    below_since: datetime | None = None  # while raised: since when there are fewer than `count`
    told_at: datetime | None = None  # time of the last notice
    number: int = 0  # dead letters at the last notice
    last: str = ""  # id of the last notice
    unsent: tuple[AlertNotice, ...] = ()  # to the webhook, oldest first
