"""Buckets of history: names that sort by time, parts that count once, sizes that are bounded."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass._model.filter import Count
from windlass._model.record import HistoryBucket, HistorySeries
from windlass._policy.history.buckets import (
    HOUR,
    MAX_BYTES,
    MAX_PARTS,
    MAX_SERIES,
    MAX_STORED_BYTES,
    MINUTE,
    OTHER,
    RESOLUTIONS,
    TEN_SECONDS,
    bounded,
    bucket_name,
    check_bucket,
    part_name,
    resolution_for,
    rolled_up,
    start_of,
    with_depths,
    with_parts,
)
from windlass.errors import InvalidOption

AT = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
EMPTY = HistoryBucket(name=bucket_name(TEN_SECONDS, AT))
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001


def part(part_id: str, **counts: int) -> HistoryBucket:
    return HistoryBucket(
        name=part_name(AT, part_id), series=(HistorySeries(queue="mail", type="welcome", **counts),)
    )


def count(queue: str, number: int, *, age: float = 0.0) -> Count:
    return Count(values=(queue, "welcome"), number=number, oldest_at=AT - timedelta(seconds=age))


class TestNames:
    @given(INSTANTS, INSTANTS, st.sampled_from(RESOLUTIONS))
    def test_names_sort_by_time(self, one: datetime, other: datetime, resolution: object) -> None:
        assert isinstance(resolution, type(HOUR))
        one, other = resolution.floor(one), resolution.floor(other)

        by_name = bucket_name(resolution, one) < bucket_name(resolution, other)

        assert by_name == (one < other)

    @given(INSTANTS, st.sampled_from(RESOLUTIONS))
    def test_a_name_tells_its_start(self, at: datetime, resolution: object) -> None:
        assert isinstance(resolution, type(HOUR))
        start = resolution.floor(at)

        assert start <= at < start + resolution.length
        assert start_of(bucket_name(resolution, start)) == start
        assert start_of(part_name(start, "p")) == start

    def test_the_names_of_a_resolution_are_a_range(self) -> None:
        names = {one: bucket_name(one, AT) for one in RESOLUTIONS} | {None: part_name(AT, "p")}

        for one in RESOLUTIONS:
            assert [key for key, name in names.items() if one.prefix < name < one.end] == [one]

    @pytest.mark.parametrize(
        "name", ["", "10s", "10s/", "10s/x", "10s/2026-11-16", "10s/2026-11-16T08:30:00"]
    )
    def test_other_names_have_no_start(self, name: str) -> None:
        assert start_of(name) is None


@pytest.mark.parametrize(
    ("period", "resolution"),
    [
        (timedelta(seconds=1), TEN_SECONDS),
        (timedelta(hours=4), TEN_SECONDS),
        (timedelta(hours=5), MINUTE),
        (timedelta(days=1), MINUTE),
        (timedelta(days=2), HOUR),
        (timedelta(days=91), HOUR),
    ],
)
def test_a_period_has_a_bounded_number_of_points(period: timedelta, resolution: object) -> None:
    assert resolution_for(period) is resolution


class TestParts:
    def test_parts_are_added_up(self) -> None:
        bucket = with_parts(EMPTY, [part("a", completed=1, retried=2), part("b", completed=3, buried=1)])

        assert bucket.series == (
            HistorySeries(queue="mail", type="welcome", completed=4, retried=2, buried=1),
        )
        assert bucket.parts == ("a", "b")

    def test_a_part_counts_once(self) -> None:
        once = with_parts(EMPTY, [part("a", completed=1)])

        assert with_parts(once, [part("a", completed=1)]) is once
        assert with_parts(once, [part("a", completed=1), part("b", completed=1)]).series[0].completed == 2

    def test_depths_are_added_to_what_was_counted(self) -> None:
        bucket = with_parts(EMPTY, [part("a", completed=1)])

        measured = with_depths(bucket, [count("mail", 7, age=1.5), count("shop", 2), count("none", 0)], AT)

        assert measured.measured
        assert measured.series == (
            HistorySeries(queue="mail", type="welcome", completed=1, depth=7, oldest=1.5),
            HistorySeries(queue="shop", type="welcome", depth=2),
        )

    def test_a_task_that_is_due_later_or_unknown_has_no_age(self) -> None:
        counts = [count("mail", 1, age=-5), Count(values=("shop", "welcome"), number=1)]

        assert [one.oldest for one in with_depths(EMPTY, counts, AT).series] == [0, 0]


class TestRollUp:
    def test_a_minute_has_the_sums_of_its_buckets_and_their_highest_depth(self) -> None:
        first = with_depths(with_parts(EMPTY, [part("a", completed=2)]), [count("mail", 9)], AT)
        second = with_depths(with_parts(EMPTY, [part("b", expired=1)]), [count("mail", 4, age=60)], AT)

        minute = rolled_up(MINUTE, AT, [first, second])

        assert minute == HistoryBucket(
            name="1m/2026-11-16T08:30:00Z",
            series=(HistorySeries(queue="mail", type="welcome", completed=2, expired=1, depth=9, oldest=60),),
            measured=True,
        )

    def test_what_was_never_measured_is_not_in_the_minute_either(self) -> None:
        assert not rolled_up(MINUTE, AT, [EMPTY]).measured


class TestBounds:
    def test_few_series_stay_as_they_are(self) -> None:
        series = [HistorySeries(queue="q", type=f"t{number:02}", completed=1) for number in range(100)]

        assert bounded(reversed(series)) == tuple(series)

    def test_the_least_active_types_of_a_queue_become_one(self) -> None:
        series = [HistorySeries(queue="q", type=f"t{n}", completed=n, depth=1) for n in range(150)]

        kept = bounded(series)

        assert len(kept) <= MAX_SERIES
        assert sum(one.completed for one in kept) == sum(one.completed for one in series)
        assert sum(one.depth for one in kept) == 150
        assert {f"t{n}" for n in range(110, 150)} <= {one.type for one in kept}
        assert [one.queue for one in kept if one.type == OTHER] == ["q"]

    def test_what_was_summed_before_takes_in_more(self) -> None:
        series = [HistorySeries(queue="q", type=f"t{n}", completed=n) for n in range(150)]

        kept = bounded([*bounded(series), *(HistorySeries(queue="q", type=f"u{n}") for n in range(90))])

        assert [one.type for one in kept].count(OTHER) == 1
        assert sum(one.completed for one in kept) == sum(range(150))

    def test_the_least_active_of_many_queues_become_one(self) -> None:
        series = [HistorySeries(queue=f"q{n}", type="t", completed=n) for n in range(1_000)]

        kept = bounded(series)

        assert len(kept) <= MAX_SERIES
        assert sum(one.completed for one in kept) == sum(range(1_000))
        assert [one.queue for one in kept if one.type == OTHER] == [OTHER]

    @pytest.mark.parametrize("queues", [1, 100])
    def test_long_names_and_many_cells_are_bounded_in_bytes(self, queues: int) -> None:
        cells = tuple(value for cell in range(128) for value in (cell, 1 << 62))
        series = [
            HistorySeries(queue=f"{n % queues:0128}", type=f"{n:0128}", wait=cells, run=cells)
            for n in range(100)
        ]

        kept = bounded(series)

        assert len(msgspec.json.encode(kept)) <= MAX_BYTES

    def test_the_bound_of_all_buckets_is_as_documented(self) -> None:
        assert round(MAX_STORED_BYTES / 10**6) == 342


class TestForeignBuckets:
    @pytest.mark.parametrize(
        "bucket",
        [EMPTY, replace(EMPTY, name=bucket_name(HOUR, HOUR.floor(AT))), part("a" * 40, completed=1, depth=2)],
    )
    def test_what_processes_make_is_accepted(self, bucket: HistoryBucket) -> None:
        check_bucket(bucket)

    @pytest.mark.parametrize(
        "name",
        [
            "other",
            "2s/2026-11-16T08:30:00Z",
            "10s/2026-11-16T08:30:01Z",
            "1h/2026-11-16T08:30:00Z",
            "10s/2026-11-16T08:30:00Z/a",
            "part/2026-11-16T08:30:00Z/" + 41 * "a",
            "part/2026-11-16T08:30:00Z/a/b",
        ],
    )
    def test_other_names_are_refused(self, name: str) -> None:
        with pytest.raises(InvalidOption, match="not the name"):
            check_bucket(replace(EMPTY, name=name))

    @pytest.mark.parametrize(
        "changes",
        [
            {"completed": -1},
            {"depth": -1},
            {"oldest": float("inf")},
            {"oldest": -0.5},
            {"wait": (3,)},
            {"run": (128, 1)},
            {"run": (1, -1)},
            {"queue": "a\nb"},
            {"type": "t" * 129},
        ],
    )
    def test_impossible_series_are_refused(self, changes: dict[str, object]) -> None:
        series = replace(HistorySeries(queue="q", type="t"), **changes)

        with pytest.raises(InvalidOption):
            check_bucket(replace(EMPTY, series=(series,)))

    def test_large_buckets_are_refused(self) -> None:
        many = tuple(HistorySeries(queue="q", type=f"t{n}") for n in range(101))
        for bucket in (
            replace(EMPTY, series=many),
            replace(EMPTY, parts=("p",) * (MAX_PARTS + 1)),
            replace(EMPTY, parts=("p" * 41,)),
        ):
            with pytest.raises(InvalidOption, match="at most"):
                check_bucket(bucket)
