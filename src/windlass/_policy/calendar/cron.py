"""The instants of cron expressions in a time zone.

cronsim parses the expression and iterates over wall-clock times. What these mean on days when clocks change
is decided here, independently of where an iteration starts, so all keepers compute the same instants:

- An expression for certain hours ("30 2 * * *") matches each wall-clock time once: a time that occurs twice
  at its first occurrence, a time that is skipped when the clock has been put forward.
- An expression for every hour ("*/15 * * * *") matches every instant whose wall-clock time matches.
"""

from collections.abc import Iterator
from copy import copy
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from ...errors import InvalidOption
from ..input.quote import counted, quoted
from .wall_clock import clock_change, first_instant, instant_of, offset_at, wall_at

EXAMPLE = '"30 3 * * 1-5" means 03:30 on weekdays'
_MAX_TEXT = 200
_SECOND = timedelta(seconds=1)
_SET_BACK = timedelta(hours=4)  # more than any zone has been set back at once since 1970
_EVERY_HOUR = frozenset(range(24))
_PARSED_AT = datetime(2000, 1, 1)  # noqa: DTZ001  # a wall clock has no zone
_FIELDS = {
    "second": (-6, "0-59"),
    "minute": (-5, "0-59"),
    "hour": (-4, "0-23"),
    "day-of-month": (-3, "1-31, L for the last day, LW for the last weekday"),
    "month": (-2, "1-12 or JAN-DEC"),
    "day-of-week": (-1, "0-7 or SUN-SAT, FRI#2 for the second Friday, 5L for the last"),
}


class Cron:
    """A parsed cron expression in a time zone. Made by `parse_cron`; immutable."""

    __slots__ = ("_every_hour", "_parsed", "_zone")

    def __init__(self, text: str, zone: str) -> None:
        self._parsed = parse_fields(text)
        self._zone = parse_zone(zone)
        self._every_hour = self._parsed.hours == _EVERY_HOUR

    def after(self, instant: datetime) -> datetime | None:
        """Return the first match after an instant, in UTC; None if there is none within fifty years."""
        try:
            return self._next_instant(instant) if self._every_hour else self._next_wall_time(instant)
        except OverflowError:  # end of the calendar
            return None

    def _next_wall_time(self, after: datetime) -> datetime | None:
        found = (first_instant(wall, self._zone) for wall in self._walls(self._wall(after)))
        return next((instant for instant in found if instant > after), None)

    def _next_instant(self, after: datetime) -> datetime | None:
        found = next(self._instants(after), None)
        return None if found is None else self._or_repeated(after, found)

    def _or_repeated(self, after: datetime, found: datetime) -> datetime:
        """Return an earlier match than `found` if the clock is set back on the way and repeats one."""
        near = min(found, after + _SET_BACK)
        if offset_at(near, self._zone) >= offset_at(after, self._zone):
            return found
        walls = self._walls(self._wall(clock_change(after, near, self._zone)) - _SECOND)
        return min(found, self._instant(next(walls), fold=1))

    def _instants(self, after: datetime) -> Iterator[datetime]:
        """Yield the instants of the wall-clock times that match next; none for times that are skipped."""
        for wall in self._walls(self._wall(after)):
            for instant in (self._instant(wall), self._instant(wall, fold=1)):
                if instant > after and self._wall(instant) == wall:
                    yield instant

    def _walls(self, after: datetime) -> Iterator[datetime]:
        iterator = copy(self._parsed)
        iterator.dt = after.replace(microsecond=0)
        return iterator

    def _wall(self, instant: datetime) -> datetime:
        return wall_at(instant, self._zone)

    def _instant(self, wall: datetime, *, fold: int = 0) -> datetime:
        return instant_of(wall, self._zone, fold=fold)


@lru_cache(maxsize=4096)
def parse_cron(text: str, zone: str) -> Cron:
    """Parse an expression in a time zone. Raises InvalidOption if either is wrong."""
    return Cron(text, zone)


@lru_cache(maxsize=4096)
def parse_fields(text: str) -> CronSim:
    """Parse an expression; the result has the values that each field matches, and must not be iterated.

    Raises InvalidOption if it is wrong or never matches.
    """
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise InvalidOption(
            f"a cron expression must be text of at most {_MAX_TEXT} characters, got {quoted(text)}"
        )
    fields = text.split()
    if len(fields) not in (5, 6):
        raise InvalidOption(
            f"the cron expression {quoted(text)} has {counted(len(fields), 'field')}; it needs five (minute, "
            f"hour, day-of-month, month, day-of-week), or six with the second first: {EXAMPLE}"
        )
    try:
        CronSim(" ".join([*fields[:-2], "*", fields[-1]]), _PARSED_AT)
    except CronSimError as error:
        raise _bad(text, str(error)) from None
    try:
        parsed = CronSim(text, _PARSED_AT)
    except CronSimError as error:
        # The days are valid, as just checked, so either the month is not, or no month has such a day.
        raise _bad(text, str(error)) if "month" in str(error).split() else _never(text) from None
    if next(copy(parsed), None) is None:
        raise _never(text)
    return parsed


def _never(text: str) -> InvalidOption:
    return InvalidOption(f"the cron expression {quoted(text)} never matches: no month has such a day")


def _bad(text: str, error: str) -> InvalidOption:
    field = error.removeprefix("Bad ")
    index, values = _FIELDS[field]
    return InvalidOption(
        f"invalid {field} {quoted(text.split()[index])} in the cron expression {quoted(text)}: "
        f"use {values}, or *, lists (1,2), ranges (1-5) and steps (*/2); for example, {EXAMPLE}"
    )


def parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError, TypeError):  # KeyError: unknown; the others: malformed
        known = {zone.lower(): zone for zone in available_timezones()}
        close = get_close_matches(str(name).lower()[:100], known, n=1)
        hint = f"did you mean {known[close[0]]!r}?" if close else "use a name such as Europe/Berlin, or UTC"
        raise InvalidOption(f"unknown time zone {quoted(name)}; {hint}") from None
