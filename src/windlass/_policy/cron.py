"""Cron expressions in a time zone: which instants they name. (T1, T5)

cronsim reads the expression and walks the wall clock. What a time on the wall means on days when clocks are
turned is decided here, and does not depend on where a walk begins: any two keepers name the same instants.

- A rule for certain hours of the day ("30 2 * * *") keeps to the wall: each time that it shows is named once.
  One that is shown twice, when it is first shown; one that is left out, when the clock has been put forward.
- A rule for every hour ("*/15 * * * *") keeps to what passes: each instant at which the wall shows a match.
"""

from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from ..errors import InvalidOption
from .input.quoting import quoted

EXAMPLE = '"30 3 * * 1-5" is half past three on weekdays'
_MAX_TEXT = 200
_SECOND = timedelta(seconds=1)
_TURNED_BACK = timedelta(hours=4)  # more than any clock has been turned back at once since 1970
_EVERY_HOUR = frozenset(range(24))
_READ_AT = datetime(2000, 1, 1)  # noqa: DTZ001  # a wall clock has no zone
_FIELDS = {
    "second": (-6, "0-59"),
    "minute": (-5, "0-59"),
    "hour": (-4, "0-23"),
    "day-of-month": (-3, "1-31, L for the last day, LW for the last weekday"),
    "month": (-2, "1-12 or JAN-DEC"),
    "day-of-week": (-1, "0-7 or SUN-SAT, FRI#2 for the second Friday, 5L for the last"),
}


class Cron:
    """A cron expression that has been read, in a zone. Made by `parse_cron`; never changes."""

    __slots__ = ("_every_hour", "_read", "_zone")

    def __init__(self, text: str, zone: str) -> None:
        self._read = _read(text)
        self._zone = _zone(zone)
        self._every_hour = self._read.hours == _EVERY_HOUR

    def after(self, instant: datetime) -> datetime | None:
        """The first instant after this one, in UTC; None if there is none in fifty years."""
        try:
            return self._passing(instant) if self._every_hour else self._shown(instant)
        except OverflowError:  # the calendar ends
            return None

    def _shown(self, after: datetime) -> datetime | None:
        found = (self._first(wall) for wall in self._walls(self._wall(after)))
        return next((instant for instant in found if instant > after), None)

    def _first(self, wall: datetime) -> datetime:
        """When the wall first shows this time, or else when that time has been left out."""
        instant = self._instant(wall)
        if self._wall(instant) == wall:
            return instant
        return self._turn(self._instant(wall, fold=1), instant)

    def _passing(self, after: datetime) -> datetime | None:
        found = next(self._when(after), None)
        return None if found is None else self._or_again(after, found)

    def _or_again(self, after: datetime, found: datetime) -> datetime:
        """The clock may be turned back on the way, and show once more what it has shown."""
        near = min(found, after + _TURNED_BACK)
        if self._offset(near) >= self._offset(after):
            return found
        walls = self._walls(self._wall(self._turn(after, near)) - _SECOND)
        return min(found, self._instant(next(walls), fold=1))

    def _when(self, after: datetime) -> Iterator[datetime]:
        """The instants at which the wall shows what it will show next; none for a time that is left out."""
        for wall in self._walls(self._wall(after)):
            for instant in (self._instant(wall), self._instant(wall, fold=1)):
                if instant > after and self._wall(instant) == wall:
                    yield instant

    def _walls(self, after: datetime) -> Iterator[datetime]:
        walk = copy(self._read)
        walk.dt = after.replace(microsecond=0)
        return walk

    def _wall(self, instant: datetime) -> datetime:
        return instant.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _instant(self, wall: datetime, *, fold: int = 0) -> datetime:
        return wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC)

    def _offset(self, instant: datetime) -> timedelta:
        return instant.astimezone(self._zone).utcoffset() or timedelta(0)

    def _turn(self, low: datetime, high: datetime) -> datetime:
        """The first second of another offset than at `low`; it has changed by `high`."""
        low, high, before = low.replace(microsecond=0), high.replace(microsecond=0), self._offset(low)
        while high - low > _SECOND:
            middle = low + (high - low) // 2 // _SECOND * _SECOND
            if self._offset(middle) == before:
                low = middle
            else:
                high = middle
        return high


@lru_cache(maxsize=4096)
def parse_cron(text: str, zone: str) -> Cron:
    """The expression in the zone; InvalidOption says what is wrong with either."""
    return Cron(text, zone)


def _read(text: str) -> CronSim:
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise InvalidOption(f"a cron expression is text of up to {_MAX_TEXT} characters, not {quoted(text)}")
    fields = text.split()
    if len(fields) not in (5, 6):
        raise InvalidOption(
            f"the cron expression {quoted(text)} has {len(fields)} fields; it takes five (minute, hour, "
            f"day-of-month, month, day-of-week), or six with the second before them: {EXAMPLE}"
        )
    try:
        CronSim(" ".join([*fields[:-2], "*", fields[-1]]), _READ_AT)
    except CronSimError as error:
        raise _bad(text, str(error)) from None
    try:
        read = CronSim(text, _READ_AT)
    except CronSimError as error:
        # The days can be read, as was seen, so either the month cannot, or none of the months has them.
        raise _bad(text, str(error)) if "month" in str(error).split() else _never(text) from None
    if next(copy(read), None) is None:
        raise _never(text)
    return read


def _never(text: str) -> InvalidOption:
    return InvalidOption(f"the cron expression {quoted(text)} names a day that never comes")


def _bad(text: str, error: str) -> InvalidOption:
    field = error.removeprefix("Bad ")
    place, takes = _FIELDS[field]
    return InvalidOption(
        f"the {field} {quoted(text.split()[place])} of the cron expression {quoted(text)} is not one: "
        f"it takes {takes}, and *, lists (1,2), ranges (1-5) and steps (*/2); an example: {EXAMPLE}"
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError, TypeError):  # KeyError: unknown; the others: not even a name
        known = {zone.lower(): zone for zone in available_timezones()}
        close = get_close_matches(str(name).lower()[:100], known, n=1)
        hint = f"did you mean {known[close[0]]!r}?" if close else "they look like Europe/Berlin, or UTC"
        raise InvalidOption(f"there is no time zone {quoted(name)}; {hint}") from None
