"""An alert: when dead letters are so many that a person should know; and whether it is raised."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from ..errors import InvalidOption
from .task import TaskId

MAX_COUNT = 1_000_000
HOLD = timedelta(minutes=5)


class Turn(StrEnum):
    """What an alert has to tell."""

    RAISED = "raised"
    REMINDED = "reminded"  # it is still raised
    CLEARED = "cleared"


class Alert(Struct, frozen=True, gc=False, kw_only=True):
    """So many dead letters of this type and queue (None: any), in all or within a window.

    Once raised, it is cleared when there have been fewer for as long as `hold`.
    """

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
                f"the alert {self.name!r} counts 1 to {MAX_COUNT:,} dead letters, not {self.count!r}"
            )
        if self.window is not None and self.window <= timedelta(0):
            raise InvalidOption(
                f"the window of the alert {self.name!r} is longer than nothing; leave it out to count all"
            )

    def __repr__(self) -> str:
        """Without the webhook: many of them hold a secret in their path."""
        return f"Alert(name={self.name!r}, type={self.type!r}, queue={self.queue!r}, count={self.count!r})"


class DeadLetter(Struct, frozen=True, gc=False, kw_only=True):
    """A dead letter as a message names it: nothing that its payload or its error's text may hold."""

    id: TaskId
    type: str
    queue: str
    error: str = ""  # the error's type


class AlertNotice(Struct, frozen=True, gc=False, kw_only=True):
    """One thing to tell of an alert, and how far the telling has come. `id` is the same in every try."""

    id: str
    turn: Turn
    number: int
    at: datetime
    raised_at: datetime
    letters: tuple[DeadLetter, ...] = ()
    tries: int = 0
    due_at: datetime | None = None  # not to be sent again before


class AlertState(Struct, frozen=True, gc=False, kw_only=True):
    """What an alert has come to: raised since when, what was last told of it, what is still to be sent."""

    name: str
    raised_at: datetime | None = None
    below_since: datetime | None = None  # while raised: since when there are fewer than it takes
    told_at: datetime | None = None
    number: int = 0  # of dead letters, when it was last told
    last: str = ""  # the id of the last news
    unsent: tuple[AlertNotice, ...] = ()  # to the webhook, oldest first
