"""Charts of history: rates, shares and highest values, of points that are taken together if they are many."""

from datetime import UTC, datetime, timedelta

import pytest

from windlass._dashboard import charts
from windlass._documents.history import HistoryDocument, HistoryPointDocument, QuantilesDocument

AT = datetime(2026, 11, 16, tzinfo=UTC)


def point(number: int = 0, seconds: float = 10, **values: object) -> HistoryPointDocument:
    nothing = dict.fromkeys(("completed", "retried", "buried", "cancelled", "expired"), 0)
    unknown = dict.fromkeys(("wait", "run", "depth", "oldest"))
    at = AT + number * timedelta(seconds=seconds)
    return HistoryPointDocument(**{"at": at, "seconds": seconds, **nothing, **unknown, **values})  # type: ignore[arg-type]


def history(*points: HistoryPointDocument) -> HistoryDocument:
    until = AT + timedelta(hours=1)
    return HistoryDocument(since=AT, until=until, resolution=10, total=point(), points=[*points])


def test_rates_are_a_minute() -> None:
    drawn = charts.throughput(history(point(completed=5, retried=1, buried=1), point(1)))
    assert drawn["at"] == [AT.timestamp(), AT.timestamp() + 10]
    assert [one["values"] for one in drawn["series"]] == [[30.0, 0.0], [12.0, 0.0]]


def test_many_points_are_taken_together() -> None:
    points = [
        point(number, completed=number % 2, depth=number) for number in range(charts.MAX_POINTS * 2 + 1)
    ]
    drawn = charts.throughput(history(*points))
    assert len(drawn["at"]) <= charts.MAX_POINTS
    assert sum(drawn["series"][0]["values"]) * 30 / 60 == pytest.approx(charts.MAX_POINTS, rel=0.01)
    assert charts.backlog(history(*points))["series"][0]["values"][-1] == charts.MAX_POINTS * 2


def test_what_was_not_measured_is_left_out() -> None:
    known = QuantilesDocument(p50=1, p95=2, p99=3)
    drawn = charts.durations(history(point(), point(1, wait=known)), "wait")
    assert {one["label"]: one["values"] for one in drawn["series"]} == {
        "p50": [None, 1],
        "p95": [None, 2],
        "p99": [None, 3],
    }
    assert charts.backlog(history(point()))["series"][0]["values"] == [None]
    assert charts.chart(history()) == {"at": [], "series": []}


def test_the_share_of_failures() -> None:
    assert charts.failure_share([point(completed=3, retried=1)]) == 0.25
    assert charts.failure_share([point()]) is None
    assert charts.per_minute([], charts.failed) is None
    assert charts.chosen_period("7d") == "7d"
    assert charts.chosen_period("999999999d") == "1h"
