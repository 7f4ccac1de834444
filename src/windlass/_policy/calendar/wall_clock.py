"""Wall-clock times of a time zone and the instants that have them, also where clocks change."""

from datetime import UTC, datetime, timedelta, tzinfo

_SECOND = timedelta(seconds=1)


def wall_at(instant: datetime, zone: tzinfo) -> datetime:
    """Return the wall-clock time of an instant, without a zone."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def instant_of(wall: datetime, zone: tzinfo, *, fold: int = 0) -> datetime:
    """Return the instant of a wall-clock time, in UTC. `fold` 1 is the second one where there are two."""
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return the first instant with this wall-clock time, or the clock change that skips it."""
    instant = instant_of(wall, zone)
    if wall_at(instant, zone) == wall:
        return instant
    return clock_change(instant_of(wall, zone, fold=1), instant, zone)


def offset_at(instant: datetime, zone: tzinfo) -> timedelta:
    """Return the offset from UTC at an instant."""
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def clock_change(low: datetime, high: datetime, zone: tzinfo) -> datetime:
    """Return the first second with another UTC offset than at `low`; it has changed by `high`."""
    low, high, before = low.replace(microsecond=0), high.replace(microsecond=0), offset_at(low, zone)
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        if offset_at(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high
