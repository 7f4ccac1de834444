"""An alert: when dead letters are so many that a person should know; and whether it is raised."""

from datetime import datetime, timedelta

from msgspec import Struct


class Alert(Struct, frozen=True, gc=False, kw_only=True):
    """So many dead letters of this type and queue (None: any), in all or within a window."""

    name: str
    type: str | None = None
    queue: str | None = None
    count: int = 1
    window: timedelta | None = None  # None: however long ago they died
    webhook: str | None = None


class Alarm(Struct, frozen=True, gc=False, kw_only=True):
    """What an alert has come to: raised since when, and what was last told of it."""

    name: str
    raised_at: datetime | None = None
    below_since: datetime | None = None  # while raised: since when there are fewer than it takes
    told_at: datetime | None = None
    number: int = 0
