"""The ticks of a schedule, and which of them to fire now."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from msgspec import Struct

from .._model.schedule import Missed, Schedule, Tick
from ..errors import InvalidOption
from .calendar.cron import parse_cron

GRACE = timedelta(seconds=60)
"""A tick that is fired later than this was missed. Longer than the election of another leader or a restart
of the store, so ticks delayed by those count as on time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_LOOK = timedelta(seconds=60)
_DENSE = 60  # ticks in a first look, at most


class Due(Struct, frozen=True, gc=False, kw_only=True):
    """The ticks to fire, oldest first. Every tick up to `at` is then fired or skipped; None: no change.

    `missed`: all ticks after the first of these instants, up to the second, were missed; None: none was.
    """

    instants: tuple[datetime, ...] = ()
    at: datetime | None = None
    missed: tuple[datetime, datetime] | None = None


def next_tick(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the first tick after an instant; None if there is none within fifty years."""
    if schedule.every is not None:
        return _interval(schedule, (after - _EPOCH) // schedule.every + 1)
    if schedule.cron is None:
        raise InvalidOption(f"schedule {schedule.name!r} has no rule; set a cron expression or an interval")
    return parse_cron(schedule.cron, schedule.zone).after(after)


def ticks(schedule: Schedule, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
    """Yield the ticks after an instant, up to and including `until` if given, oldest first."""
    tick = next_tick(schedule, after)
    while tick is not None and (until is None or tick <= until):
        yield tick
        tick = next_tick(schedule, tick)


def newest(schedule: Schedule, after: datetime, until: datetime, limit: int) -> tuple[datetime, ...]:
    """Return the last `limit` ticks after one instant and up to another, oldest first.

    Searches backwards from the end in growing spans, so it never computes many more than `limit`.
    """
    if until <= after:
        return ()
    if schedule.every is not None:
        last = (until - _EPOCH) // schedule.every
        first = max((after - _EPOCH) // schedule.every + 1, last - limit + 1)
        return tuple(tick for number in range(first, last + 1) if (tick := _interval(schedule, number)))
    enough = 4 * limit + _DENSE
    low, too_late, too_early = max(after, until - _FIRST_LOOK), until, None
    while True:
        found = tuple(islice(ticks(schedule, low, until), enough + 1))
        if len(found) > enough:
            too_early, low = low, low + (too_late - low) / 2
        elif len(found) >= limit or low <= after:
            return found[-limit:]
        else:
            too_late, span = low, until - low
            low = max(after, low - span) if too_early is None else too_early + (low - too_early) / 2


def due(schedule: Schedule, tick: Tick, now: datetime) -> Due:
    """Return what to fire now: ticks within `GRACE`, and missed ones as `schedule.missed` says.

    If the clock was set back, it continues from there: ticks that are fired again already have a task.
    """
    if schedule.paused:
        return Due()
    if tick.at > now:
        return Due(at=now)
    after = tick.at if schedule.since is None or schedule.since > now else max(tick.at, schedule.since)
    edge = max(after, now - GRACE)
    on_time = tuple(ticks(schedule, edge, now))
    wanted = {Missed.SKIP: 1, Missed.ONCE: 1, Missed.ALL: schedule.at_most}[schedule.missed]
    missed = newest(schedule, after, edge, wanted)
    if not on_time and not missed:
        return Due()
    fired = () if schedule.missed is Missed.SKIP else missed
    span = (after, missed[-1]) if missed else None
    return Due(instants=(*fired, *on_time), at=(*missed, *on_time)[-1], missed=span)


def overdue(schedule: Schedule, tick: Tick | None, now: datetime) -> timedelta:
    """Return how long the first unfired tick has been due; 0 if none is."""
    known = [at for at in (schedule.since, None if tick is None else tick.at) if at is not None]
    if schedule.paused or not known:  # A schedule begins when a keeper first sees it.
        return timedelta(0)
    first = next_tick(schedule, max(known))
    return timedelta(0) if first is None else max(now - first, timedelta(0))


def _interval(schedule: Schedule, number: int) -> datetime | None:
    """Return the tick of a number. Intervals are counted from 1970, so that all keepers agree."""
    assert schedule.every is not None
    try:
        return _EPOCH + number * schedule.every
    except OverflowError:  # end of the calendar
        return None
