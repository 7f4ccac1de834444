"""Parse and check durations, instants and names."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from ..._model.task import MAX_DELAY
from ...errors import InvalidOption
from .quote import quoted

E = TypeVar("E", bound=StrEnum)
V = TypeVar("V")

_MAX_TEXT = 100
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_NAME = re.compile(r"[\w][\w.:@/+-]{0,127}")


def parse_duration(value: timedelta | float | str, what: str) -> timedelta:
    """Parse a duration: a timedelta, a number of seconds, or text such as "90s", "5m", "1h30m"."""
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
                f'{what} must be a timedelta, a number of seconds or text such as "5m", at most ten years, '
                f"got {quoted(value)}"
            )
    if not timedelta(0) <= found <= MAX_DELAY:
        raise InvalidOption(f"{what} must be from 0 to ten years, got {found}")
    return found


def format_duration(seconds: float) -> str:
    """Format a duration as `parse_duration` reads it: "1h30m"."""
    parts = ""
    for unit in ("d", "h", "m"):
        whole, seconds = divmod(seconds, _UNITS[unit])
        parts += f"{int(whole)}{unit}" if whole else ""
    return f"{parts}{seconds:g}s" if seconds or not parts else parts


def checked_instant(value: datetime | str, what: str) -> datetime:
    """Convert an aware datetime to UTC."""
    if not isinstance(value, datetime):
        raise InvalidOption(f"{what} must be a datetime, got {quoted(value)}")
    if value.utcoffset() is None:
        raise InvalidOption(
            f"{what} {value!s} has no time zone; pass an aware datetime, for example datetime.now(UTC)"
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidOption(f"{what} {value!s} is outside the years 1 to 9999 in UTC") from None


def parse_choice(kind: type[E], value: str, what: str) -> E:
    """Parse one of the values of an enumeration."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(f"{what} must be one of {', '.join(kind)}, got {quoted(value)}") from None


def checked_number(value: object, what: str, highest: int, kind: str = "number") -> int:
    """Check a whole number from 1 up to the highest."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= highest:
        raise InvalidOption(f"{what} must be a whole {kind} from 1 to {highest}, got {quoted(value)}")
    return value


def checked_name(value: str, what: str) -> str:
    """Check a name of a queue, tenant or type: 1 to 128 letters, digits and . _ - : @ / +"""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidOption(
            f"the {what} {quoted(value)} is not a valid name: use 1 to 128 letters, digits and "
            f". _ - : @ / + , starting with a letter, a digit or _"
        )
    return value


def checked_text(value: str, what: str, longest: int) -> str:
    """Check a text of at most so many characters, all of them printable."""
    if len(value) > longest or not value.isprintable():
        raise InvalidOption(f"{what} must be at most {longest:,} printable characters, got {quoted(value)}")
    return value


def checked_sequence(value: Iterable[V], what: str, kind: str) -> tuple[V, ...]:
    """Check that a value is a sequence. A single string is refused: it would be read as its letters."""
    if isinstance(value, str):
        raise InvalidOption(f"{what} must be a sequence of {kind}; for a single one pass [{quoted(value)}]")
    if not isinstance(value, Iterable):
        raise InvalidOption(f"{what} must be a sequence of {kind}, got {quoted(value)}")
    return tuple(value)


def checked_names(value: Iterable[str], what: str) -> tuple[str, ...]:
    """Check a sequence of names."""
    found = checked_sequence(value, what, "names")
    for one in found:
        if not isinstance(one, str) or not one:
            raise InvalidOption(f"{what} must be names, got {quoted(one)}")
    return found
