"""Replay many tasks one after another: how far apart they are due."""

from datetime import datetime, timedelta
from math import isfinite

from ...errors import InvalidOption
from .options import parse_duration


def check_pace(per_second: float | None, spread: timedelta | float | str | None) -> None:
    """Raise InvalidOption for a rate or a duration that no replay can have, and for both."""
    if per_second is not None and spread is not None:
        raise InvalidOption("give per_second or spread, not both")
    if per_second is not None:
        if not isfinite(per_second) or per_second <= 0:
            raise InvalidOption(f"per_second must be greater than 0, got {per_second:g}")
        parse_duration(1 / per_second, "1 / per_second")
    if spread is not None:
        parse_duration(spread, "spread")


def interval_between(
    number: int, per_second: float | None, spread: timedelta | float | str | None
) -> timedelta:
    """Return the time between two of this many tasks; 0 if all are due at once."""
    if spread is not None:
        return parse_duration(spread, "spread") / max(number, 1)
    return timedelta(0) if per_second is None else timedelta(seconds=1 / per_second)


def slots_until(at: datetime, end: datetime, interval: timedelta) -> int:
    """Return how many tasks are due from `at` to before `end`, the first of them at `at`."""
    return -((at - end) // interval)
