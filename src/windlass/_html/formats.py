"""How pages show numbers, sizes, durations and instants."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup, escape

_SPANS = ((1, 1e-3, "ms"), (60, 1, "s"), (3600, 60, "m"), (48 * 3600, 3600, "h"))
NONE = "\N{EN DASH}"
"""What is shown for a value that is not there."""

_SIZES = ("B", "kB", "MB", "GB", "TB")


def number(value: float | None, *, exact: bool = True) -> str:
    """Return a number with separators: "12,345"; "≈ 12,000" for an estimate."""
    if value is None:
        return NONE
    if not exact and value >= 1_000:
        return f"≈ {float(f'{value:.2g}'):,.0f}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def compact(value: float | None) -> str:
    """Return a number of at most four characters and a suffix: "987", "12.3k", "4.5M"."""
    if value is None:
        return NONE
    for divisor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= divisor:
            return f"{value / divisor:.3g}{suffix}"
    return f"{value:.3g}"


def percent(share: float | None) -> str:
    """Return a share as percent: "3.2 %"."""
    if share is None:
        return NONE
    value = share * 100
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %"


def duration(seconds: float | None) -> str:
    """Return a duration in one unit: "250 ms", "1.5 s", "12 m"."""
    if seconds is None or not isfinite(seconds):
        return NONE
    if seconds <= 0:
        return "0 s"
    for below, unit, name in _SPANS:
        if seconds < below:
            value = seconds / unit
            digits = 1 if value < 10 and unit <= 1 and value % 1 >= 0.05 else 0
            return f"{value:.{digits}f} {name}"
    return f"{seconds / 86400:.0f} d"


def age(seconds: float) -> str:
    """Return an age that changes once a second at most: "< 1 s", "5 s", "12 m"."""
    return "< 1 s" if seconds < 1 else duration(int(seconds))


def size(number_of_bytes: float | None) -> str:
    """Return a size: "1.5 MB"."""
    if number_of_bytes is None:
        return NONE
    value = float(number_of_bytes)
    for unit in _SIZES:
        if value < 1000 or unit == _SIZES[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def instant(at: datetime | None, *, exact: bool = False) -> str:
    """Return a <time>: the script shows how long ago it is, and the exact instant when pointed at.

    Without the script it is the instant in UTC. `exact`: it stays the instant.
    """
    if at is None:
        return NONE
    utc = at.astimezone(UTC)
    text = f"{utc:%Y-%m-%d %H:%M:%S}"
    machine = utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    kind = Markup(' class="exact"') if exact else ""
    return Markup('<time datetime="{0}" title="{1} UTC"{2}>{1}</time>').format(machine, text, kind)


def clock(seconds: float) -> str:
    """Return the time of day of an instant in seconds since 1970, in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}"


def segment(name: str) -> str:
    """Return a name as one segment of a path, or as a value in a query."""
    return quote(name, safe="")


def words(text: str) -> Markup:
    """Return a line of prose; text in backticks becomes code."""
    parts = re.split(r"`([^`]+)`", text)
    marked = [
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    ]
    return Markup("").join(marked)


def prose(text: str) -> Markup:
    """Return paragraphs of prose, which blank lines separate."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text.strip()) if part]
    return Markup("").join(Markup("<p>{}</p>").format(words(part)) for part in paragraphs)


def sentence(text: str) -> str:
    """Return the message of an error as a sentence: with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '…', '?', '!')) else '.'}"


def pretty_json(value: Any) -> Markup:
    """Return JSON with its keys, strings and numbers marked for colours."""
    return Markup("").join(_json_parts(msgspec.to_builtins(value, str_keys=True), 0))


def json_line(value: Any, limit: int = 120) -> str:
    """Return JSON on one line, cut at its end."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def sparkline(values: Sequence[float | None], width: int = 120, height: int = 28) -> Markup:
    """Return a small line chart as SVG, hidden from screen readers: the numbers stand beside it."""
    known = [value or 0.0 for value in values]
    if len(known) < 2:
        return Markup("")
    top = max(known) or 1.0
    step = width / (len(known) - 1)
    points = [(number * step, height - 2 - value / top * (height - 4)) for number, value in enumerate(known)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup(
        '<svg class="sparkline" viewBox="0 0 {w} {h}" width="{w}" height="{h}" aria-hidden="true" '
        'preserveAspectRatio="none"><polygon points="0,{h} {line} {w},{h}"/><polyline points="{line}"/></svg>'
    ).format(w=width, h=height, line=line)


def _json_parts(value: Any, depth: int) -> Sequence[Markup]:
    inner, outer = "  " * (depth + 1), "  " * depth
    match value:
        case dict() if value:
            rows = [
                Markup("{}<b>{}</b>: {}").format(
                    inner, _encoded(name), Markup("").join(_json_parts(one, depth + 1))
                )
                for name, one in value.items()
            ]
            return [Markup("{\n"), Markup(",\n").join(rows), Markup("\n{}}}").format(outer)]
        case list() if value:
            items = [Markup("").join(_json_parts(one, depth + 1)) for one in value]
            rows = [Markup("{}{}").format(inner, item) for item in items]
            return [Markup("[\n"), Markup(",\n").join(rows), Markup("\n{}]").format(outer)]
        case str():
            return [Markup("<i>{}</i>").format(_encoded(value))]
        case _:
            return [Markup("<u>{}</u>").format(_encoded(value))]


def _encoded(value: Any) -> Markup:
    return escape(msgspec.json.encode(value).decode())
