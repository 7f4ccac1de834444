"""Parse and format windows: "mon-fri 22:00-06:00 Europe/Berlin"."""

import re
from collections.abc import Iterable
from typing import Any

from ..._model.queue import Window
from ...errors import InvalidOption
from ..calendar.cron import parse_zone
from ..input.quote import quoted

EXAMPLE = '"mon-fri 22:00-06:00 Europe/Berlin"'
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(
    r"(?:(?P<days>[a-z]{3}(?:[-,][a-z]{3})*)\s+)?"
    r"(?P<opens>\d{1,2}:\d{2})\s*-\s*(?P<closes>\d{1,2}:\d{2})"
    r"(?:\s+(?P<zone>[A-Za-z0-9_+/-]{1,64}))?",
    re.ASCII,
)
_MINUTES = 60


def parse_windows(value: Any) -> tuple[Window, ...]:
    """Return windows from text, a `Window`, or several of them; None is none. Raises InvalidOption."""
    if value is None:
        return ()
    if isinstance(value, str | Window):
        return (parse_window(value),)
    if not isinstance(value, Iterable):
        raise InvalidOption(f"windows must be texts such as {EXAMPLE}, got {quoted(value)}")
    return tuple(map(parse_window, value))


def parse_window(value: Any) -> Window:
    """Return a window from text: days, hours and zone, of which days and zone can be left out."""
    if isinstance(value, Window):
        parse_zone(value.zone)
        return value
    found = _WINDOW.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 200 else None
    if found is None:
        raise InvalidOption(
            f"a window is days, hours and a time zone, such as {EXAMPLE} or 08:00-18:00 for every day in "
            f"UTC; got {quoted(value)}"
        )
    zone = found["zone"] or "UTC"
    parse_zone(zone)
    return Window(
        days=_days(found["days"]) if found["days"] else tuple(range(7)),
        opens=_minutes(found["opens"]),
        closes=_minutes(found["closes"]),
        zone=zone,
    )


def format_window(window: Window) -> str:
    """Format a window as `parse_window` reads it."""
    days = "" if len(window.days) == len(_DAYS) else f"{_format_days(window.days)} "
    return f"{days}{_format_minutes(window.opens)}-{_format_minutes(window.closes)} {window.zone}"


def _days(text: str) -> tuple[int, ...]:
    days: set[int] = set()
    for part in text.split(","):
        first, *last = [_day(name) for name in part.split("-")]
        if len(last) > 1:
            raise InvalidOption(f"{quoted(part)} is not a range of days such as mon-fri")
        until = last[0] if last else first
        days |= {(first + number) % 7 for number in range((until - first) % 7 + 1)}
    return tuple(sorted(days))


def _day(name: str) -> int:
    if name not in _DAYS:
        raise InvalidOption(f"{quoted(name)} is not a day; the days are {', '.join(_DAYS)}")
    return _DAYS.index(name)


def _minutes(text: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if minutes >= _MINUTES or hours * _MINUTES + minutes > 24 * _MINUTES:
        raise InvalidOption(f"{quoted(text)} is not a time of day from 00:00 to 24:00")
    return hours * _MINUTES + minutes


def _format_days(days: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for day in days:
        if runs and day == runs[-1][-1] + 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(_DAYS[run[0]] if len(run) == 1 else f"{_DAYS[run[0]]}-{_DAYS[run[-1]]}" for run in runs)


def _format_minutes(minutes: int) -> str:
    return f"{minutes // _MINUTES:02}:{minutes % _MINUTES:02}"
