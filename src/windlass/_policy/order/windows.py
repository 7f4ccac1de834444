"""When a queue is open: the spans of time in which its windows let tasks start.

Windows are wall-clock times of a zone. A time that occurs twice, as clocks are set back, is its first
occurrence; one that is skipped is the change that skips it. Windows that touch or overlap are one span.
"""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from ..._model.queue import MINUTES_A_DAY, QueueSettings, Window
from ..calendar.wall_clock import first_instant

_DAY = timedelta(days=1)
_BACK, _AHEAD = 3, 16
"""Days around today to look at: a weekly window that a clock change skips opens a week later."""


class Opening(Struct, frozen=True):
    """A span of time in which a queue is open, from `opens_at` to before `closes_at`."""

    opens_at: datetime
    closes_at: datetime


def opening(windows: tuple[Window, ...], now: datetime) -> Opening:
    """Return the present opening of a queue with windows or, while it is closed, the next one."""
    return next(one for one in _openings(windows, now.date()) if one.closes_at > now)


def open_queues(
    queues: Iterable[str], settings: Mapping[str, QueueSettings], now: datetime
) -> tuple[list[str], float | None]:
    """Return the queues from which tasks may start now, and the seconds until a further one opens."""
    found: list[str] = []
    wait: float | None = None
    for queue in dict.fromkeys(queues):
        known = settings.get(queue)
        if known is None or not (known.paused or known.windows):
            found.append(queue)
        elif not known.paused:
            opens_at = opening(known.windows, now).opens_at
            if opens_at <= now:
                found.append(queue)
            else:
                seconds = (opens_at - now).total_seconds()
                wait = seconds if wait is None else min(wait, seconds)
    return found, wait


def closed_until(settings: QueueSettings | None, now: datetime) -> datetime | None:
    """Return when a queue opens that its windows keep closed now; None if they do not."""
    if settings is None or not settings.windows:
        return None
    opens_at = opening(settings.windows, now).opens_at
    return opens_at if opens_at > now else None


@lru_cache(maxsize=256)
def _openings(windows: tuple[Window, ...], today: date) -> tuple[Opening, ...]:
    """Return the openings of the days around today, in order."""
    first, last = today - _BACK * _DAY, today + _AHEAD * _DAY
    spans = [
        (_instant(window, day, window.opens), _instant(window, day, window.ends))
        for window in windows
        for day in (first + number * _DAY for number in range((last - first).days + 1))
        if day.weekday() in window.days
    ]
    merged: list[tuple[datetime, datetime]] = []
    for opens_at, closes_at in sorted(span for span in spans if span[0] < span[1]):
        if merged and opens_at <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], closes_at)
        else:
            merged.append((opens_at, closes_at))
    return tuple(Opening(*span) for span in merged)


def _instant(window: Window, day: date, minutes: int) -> datetime:
    """Return the instant at which the wall clock shows this many minutes after midnight."""
    days, minutes = divmod(minutes, MINUTES_A_DAY)
    wall = datetime.combine(day + days * _DAY, time(minutes // 60, minutes % 60))
    return first_instant(wall, ZoneInfo(window.zone))
