"""The fields of forms: text that people type, as values; and values as the text of a field."""

from .._http.web.problems import Problem
from .._policy.input.options import format_duration, parse_duration
from .._policy.input.quote import quoted


def duration_field(seconds: float | None) -> str:
    """Return a duration as `seconds_of` reads it; "" for none."""
    return "" if seconds is None else format_duration(seconds)


def seconds_of(text: str, what: str) -> float | None:
    """Return the seconds of "1h30m" or "90"; None if the field is empty. Raises InvalidOption."""
    if not text:
        return None
    return parse_duration(float(text) if _is_number(text) else text, what).total_seconds()


def whole_of(text: str, what: str) -> int | None:
    """Return a whole number; None if the field is empty. Raises a Problem."""
    if not text:
        return None
    if not (_is_number(text.removeprefix("-")) and "." not in text):
        raise Problem("invalid-option", f"{what} must be a whole number, got {quoted(text)}")
    return int(text)


def number_of(text: str, what: str) -> float | None:
    """Return a number; None if the field is empty. Raises a Problem."""
    if not text:
        return None
    if not _is_number(text):
        raise Problem("invalid-option", f"{what} must be a number, got {quoted(text)}")
    return float(text)


def lines_of(text: str) -> list[str]:
    """Return the lines of a field that are not empty."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def _is_number(text: str) -> bool:
    """Tell whether text is a decimal number that is short enough to be meant as one."""
    return len(text) <= 15 and text.isascii() and text.replace(".", "", 1).isdigit()
