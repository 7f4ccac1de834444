"""Charts of history: from the points of a period to the series that a chart draws. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from .._documents.history import HistoryDocument, HistoryPointDocument

Points: TypeAlias = Sequence[HistoryPointDocument]
Chart: TypeAlias = dict[str, Any]
"""`at`: seconds since 1970; `series`: label, values, tone and kind of each line."""

PERIODS = ("5m", "1h", "24h", "7d", "90d")
"""The periods that people choose from."""

MAX_POINTS = 180
"""Points of a chart: more cannot be told apart."""


class Line(Struct, frozen=True):
    """A line of a chart: what it shows of some successive points."""

    label: str
    tone: str
    value: Callable[[Points], float | None]
    kind: str = "line"


def chosen_period(text: str, default: str = "1h") -> str:
    """Return the period that was asked for, if it is one of the choices."""
    return text if text in PERIODS else default


def failed(point: HistoryPointDocument) -> int:
    """Return the failed attempts: those that are retried, and those after which the task is dead."""
    return point.retried + point.buried


def per_minute(points: Points, number: Callable[[HistoryPointDocument], int]) -> float | None:
    """Return how many there were in a minute, on average."""
    seconds = sum(point.seconds for point in points)
    return round(sum(map(number, points)) * 60 / seconds, 2) if seconds else None


def failure_share(points: Points) -> float | None:
    """Return the share of attempts that failed; None if there were none."""
    bad, good = sum(map(failed, points)), sum(point.completed for point in points)
    return bad / (bad + good) if bad + good else None


def throughput(history: HistoryDocument) -> Chart:
    """Return completed tasks and failed attempts, a minute."""
    return chart(
        history,
        Line("completed", "accent", lambda some: per_minute(some, lambda one: one.completed), "area"),
        Line("failed", "bad", lambda some: per_minute(some, failed), "area"),
    )


def backlog(history: HistoryDocument) -> Chart:
    """Return the highest number of ready tasks."""
    return chart(history, Line("ready", "info", lambda some: _highest(one.depth for one in some), "area"))


def durations(history: HistoryDocument, name: str) -> Chart:
    """Return p50, p95 and p99 of the waiting (`wait`) or running (`run`) time."""

    def line(quantile: str, tone: str) -> Line:
        def value(some: Points) -> float | None:
            known = (getattr(one, name) for one in some)
            return _highest(None if one is None else getattr(one, quantile) for one in known)

        return Line(quantile, tone, value)

    return chart(history, line("p99", "warn"), line("p95", "info"), line("p50", "accent"))


def chart(history: HistoryDocument, *lines: Line) -> Chart:
    """Return a chart; points too many to be told apart are taken together."""
    size = -(-len(history.points) // MAX_POINTS) or 1
    groups = [history.points[start : start + size] for start in range(0, len(history.points), size)]
    return {
        "at": [int(group[0].at.timestamp()) for group in groups],
        "series": [
            {"label": one.label, "tone": one.tone, "kind": one.kind, "values": [*map(one.value, groups)]}
            for one in lines
        ],
    }


def _highest(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)
