"""Instants and durations as people read them: "3 s ago", "in 5 m"."""

from datetime import datetime, timedelta

_UNITS = ((60, 1, "s"), (3600, 60, "m"), (48 * 3600, 3600, "h"))


def ago(instant: datetime | None, now: datetime) -> str:
    """How far from now, in one unit."""
    if instant is None:
        return ""
    seconds = (now - instant).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time in one unit."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for below, unit, name in _UNITS:
        if seconds < below:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds // 86400)} d"


def stamp(instant: datetime | None, now: datetime) -> str:
    """The instant itself, and how far it is from now."""
    if instant is None:
        return ""
    return f"{iso(instant)}  ({ago(instant, now)})"


def iso(instant: datetime) -> str:
    """ISO 8601 in UTC, as JSON has it."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(duration: timedelta | None) -> float | None:
    """A duration as JSON has it."""
    return None if duration is None else duration.total_seconds()
