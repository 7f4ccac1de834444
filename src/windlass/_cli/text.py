"""Values as text: escaped for the terminal, JSON on one line, instants and durations in one unit."""

import json
from datetime import datetime, timedelta
from typing import Any

import msgspec

from .._policy.input.quote import printable

_UNITS = ((60, 1, "s"), (3600, 60, "m"), (48 * 3600, 3600, "h"))


def one_line(text: str) -> str:
    """Escape the text and put it on one line.

    Payloads, results and errors come from anywhere. Escape sequences, control characters and marks that
    change the writing direction would act on the terminal, so they are shown escaped.
    """
    lines = (line.strip() for line in text.replace("\r", "\n").split("\n"))
    return printable(" ".join(line for line in lines if line))


def escaped_lines(text: str) -> list[str]:
    """Split the text at its own line breaks and escape each line."""
    return [printable(line.expandtabs(4)) for line in text.split("\n")]


def json_text(value: Any, *, encoding: str = "utf-8") -> str:
    """Encode as JSON in which every character is printable and can be written in this encoding.

    Structs become objects, instants ISO 8601.
    """
    text = json.dumps(
        msgspec.to_builtins(value, str_keys=True), ensure_ascii=not encoding.lower().startswith("utf")
    )
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def ago(instant: datetime | None, now: datetime) -> str:
    """The distance from now in one unit: "3 s ago", "in 5 m"; "" for None."""
    if instant is None:
        return ""
    seconds = (now - instant).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time in one unit, rounded down: "250 ms", "5 m"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for below, unit, name in _UNITS:
        if seconds < below:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds // 86400)} d"


def duration_text(duration: timedelta | None) -> str:
    """A duration in one unit; "" for None and for zero."""
    return span(duration.total_seconds()) if duration else ""


def stamp(instant: datetime | None, now: datetime) -> str:
    """The instant in ISO 8601 and its distance from now; "" for None."""
    return "" if instant is None else f"{iso(instant)}  ({ago(instant, now)})"


def iso(instant: datetime) -> str:
    """ISO 8601 in UTC with milliseconds."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
