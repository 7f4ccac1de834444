"""Points of history: one for each bucket of a period, for all tasks or those of a queue or type."""

from datetime import UTC, datetime, timedelta

import pytest

from windlass._model.record import HistoryBucket, HistorySeries
from windlass._policy.history.buckets import TEN_SECONDS, bucket_name
from windlass._policy.history.histogram import cell_of, seconds_of
from windlass._policy.history.points import History, HistoryPoint, Quantiles, parse_period
from windlass.errors import InvalidOption

AT = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
SECOND = cell_of(1.0)


def at(seconds: int) -> datetime:
    return AT + timedelta(seconds=seconds)


HISTORY = History(
    resolution=TEN_SECONDS,
    since=AT,
    until=at(30),
    buckets=(
        HistoryBucket(
            name=bucket_name(TEN_SECONDS, AT),
            series=(
                HistorySeries(queue="mail", type="a", completed=2, run=(SECOND, 2), depth=3, oldest=9.0),
                HistorySeries(queue="mail", type="b", retried=1, buried=2, depth=4, oldest=1.0),
                HistorySeries(queue="shop", type="a", cancelled=5, expired=1),
            ),
            measured=True,
        ),
        HistoryBucket(
            name=bucket_name(TEN_SECONDS, at(20)),
            series=(HistorySeries(queue="mail", type="a", completed=1, wait=(SECOND, 1)),),
        ),
    ),
)
ABOUT_A_SECOND = Quantiles(*[seconds_of(SECOND)] * 3)


def test_there_is_a_point_for_each_bucket_known_or_not() -> None:
    assert HISTORY.points() == (
        HistoryPoint(
            at=AT,
            seconds=10,
            completed=2,
            retried=1,
            buried=2,
            cancelled=5,
            expired=1,
            run=ABOUT_A_SECOND,
            depth=7,
            oldest=9.0,
        ),
        HistoryPoint(at=at(10), seconds=10),
        HistoryPoint(at=at(20), seconds=10, completed=1, wait=ABOUT_A_SECOND),
    )


@pytest.mark.parametrize(
    ("where", "completed", "failed", "depth"),
    [
        ({}, 3, 3, 7),
        ({"queue": "mail"}, 3, 3, 7),
        ({"type": "a"}, 3, 0, 3),
        ({"queue": "mail", "type": "b"}, 0, 3, 4),
        ({"queue": "shop"}, 0, 0, 0),
        ({"queue": "none"}, 0, 0, 0),
    ],
)
def test_a_total_is_of_what_was_asked_for(
    where: dict[str, str], completed: int, failed: int, depth: int
) -> None:
    total = HISTORY.total(**where)

    assert (total.at, total.seconds) == (AT, 30)
    assert (total.completed, total.failed, total.depth) == (completed, failed, depth)


def test_only_some_queues() -> None:
    only = HISTORY.only(["shop"])

    assert only.names() == (("shop", "a"),)
    assert (only.total().cancelled, only.total().completed, only.total().depth) == (5, 0, 0)


def test_names_are_of_all_series() -> None:
    assert HISTORY.names() == (("mail", "a"), ("mail", "b"), ("shop", "a"))


def test_totals_are_those_of_each_queue_and_type() -> None:
    totals = HISTORY.totals(parts=3)
    assert tuple((one.queue, one.type) for one in totals) == HISTORY.names()
    assert all(one.total == HISTORY.total(queue=one.queue, type=one.type) for one in totals[:2])
    assert totals[0].completed == (2, 0, 1)
    assert totals[2].total.cancelled == 5


@pytest.mark.parametrize(("period", "seconds"), [("1h", 3_600), (90, 90), (timedelta(days=91), 7_862_400)])
def test_a_period_is_a_duration(period: timedelta | float | str, seconds: float) -> None:
    assert parse_period(period).total_seconds() == seconds


@pytest.mark.parametrize("period", [0, -1, "92d", "soon"])
def test_other_periods_are_refused(period: float | str) -> None:
    with pytest.raises(InvalidOption, match="period"):
        parse_period(period)
