"""Options as users write them, made exact: durations, names, instants."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from ...errors import InvalidOption
from .quoting import quoted

MAX_DELAY = timedelta(days=3660)
_MAX_TEXT = 100
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_NAME = re.compile(r"[\w][\w.:@/+-]{0,127}")


def parse_duration(value: timedelta | float | str, what: str) -> timedelta:
    """A duration from itself, a number of seconds, or text such as "90s", "5m", "1h30m"."""
    match value:
        case timedelta():
            found = value
        case str() if len(value) <= _MAX_TEXT and _DURATION.fullmatch(value):
            seconds = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(value))
            found = timedelta(seconds=min(seconds, 2 * MAX_DELAY.total_seconds()))
        case int() | float() if not isinstance(value, bool) and abs(value) <= MAX_DELAY.total_seconds():
            found = timedelta(seconds=value)
        case _:
            raise InvalidOption(
                f'a {what} is a timedelta, a number of seconds up to ten years or text like "5m", '
                f"not {quoted(value)}"
            )
    if not timedelta(0) <= found <= MAX_DELAY:
        raise InvalidOption(f"a {what} is between nothing and ten years, not {found}")
    return found


def checked_instant(value: datetime, what: str) -> datetime:
    """A moment in UTC; a naive datetime is refused."""
    if not isinstance(value, datetime):
        raise InvalidOption(f"a {what} is a datetime, not {quoted(value)}")
    if value.utcoffset() is None:
        raise InvalidOption(
            f"the {what} {value!s} is naive: nobody can know which instant it means; "
            f"give it a time zone, as in datetime.now(UTC)"
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidOption(f"the {what} {value!s} is beyond the years that UTC can say") from None


def checked_name(value: str, what: str) -> str:
    """A name of a queue, tenant or type: 1 to 128 letters, digits and . _ - : @ / +"""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidOption(
            f"the {what} {quoted(value)} is not a name: use 1 to 128 letters, digits and . _ - : @ / + , "
            f"beginning with a letter, a digit or _"
        )
    return value


def checked_names(value: Iterable[str], what: str) -> tuple[str, ...]:
    """Several names. One string alone is a slip: it would be read as its letters."""
    if isinstance(value, str):
        raise InvalidOption(f"{what} takes several names; for one alone write ({quoted(value)},)")
    found = tuple(value)
    for one in found:
        if not isinstance(one, str) or not one:
            raise InvalidOption(f"{what} takes names, not {quoted(one)}")
    return found
