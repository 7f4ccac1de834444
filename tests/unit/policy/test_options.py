"""Options: durations, instants and names are parsed, and invalid ones refused by name."""

import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.input.options import (
    MAX_DELAY,
    checked_instant,
    checked_name,
    checked_names,
    format_duration,
    parse_duration,
)
from windlass.errors import InvalidOption


class Nowhere(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1m1ms", 60.001),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("0s", 0),
        ("3660d", 3660 * 86_400),
        (0, 0),
        (90, 90),
        (0.25, 0.25),
        (timedelta(minutes=5), 300),
        (MAX_DELAY, 3660 * 86_400),
        (3660 * 86_400, 3660 * 86_400),
    ],
)
def test_a_duration_is_text_a_number_of_seconds_or_itself(
    value: timedelta | float | str, seconds: float
) -> None:
    assert parse_duration(value, "delay") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            " ",
            "5",
            "5 m",
            "m",
            "m5",
            "-5m",
            "+5m",
            "5M",
            "1h 30m",
            "1h30",
            "1,5h",
            "1e3s",
            ".5s",
            "5.s",
            "5m\n",
        ),
        *("\u0663s", "infs", "nans", "soon", "\0", "\ud800", None, True, [], b"5m"),
        *(-1, -0.001, math.nan, math.inf, -math.inf, 3660 * 86_400 + 1, 1e300),
        *(timedelta(-1), timedelta.max, MAX_DELAY + timedelta(microseconds=1)),
        *("3661d", "99999999999999w"),
        pytest.param(10**5000, id="endless number"),
        pytest.param("9" * 400 + "s", id="endless digits"),
        pytest.param("1s" * 1_000_000, id="endless text"),
        pytest.param("9" * 99 + "w", id="many digits"),
    ],
    ids=ascii,
)
def test_anything_else_is_no_duration(value: object) -> None:
    with pytest.raises(InvalidOption, match="delay must be ") as caught:
        parse_duration(value, "delay")

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@given(st.integers(0, 3659), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_the_parts_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int, ms: int) -> None:
    written = f"{days}d{hours}h{minutes}m{seconds}s{ms}ms"

    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
    assert abs(parse_duration(written, "delay") - expected) <= timedelta(microseconds=1)


@given(st.text() | st.floats() | st.integers() | st.timedeltas())
def test_no_duration_does_worse_than_being_refused(value: timedelta | float | str) -> None:
    found = timedelta(0)
    try:
        found = parse_duration(value, "delay")
    except InvalidOption:
        return

    assert timedelta(0) <= found <= MAX_DELAY


@given(st.integers(0, 315_360_000), st.integers(0, 9))
def test_a_duration_is_formatted_as_it_is_read(seconds: int, tenths: int) -> None:
    given = timedelta(seconds=seconds, milliseconds=100 * tenths)
    assert parse_duration(format_duration(given.total_seconds()), "delay") == given


def test_a_formatted_duration_is_short() -> None:
    shown = [format_duration(seconds) for seconds in (0, 90, 5400, 86400.5, 7 * 86400)]
    assert shown == ["0s", "1m30s", "1h30m", "1d0.5s", "7d"]


def test_an_instant_is_the_same_moment_in_utc() -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))

    assert checked_instant(moment, "run_at") == moment
    assert checked_instant(moment, "run_at").tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (datetime(2026, 1, 1), "has no time zone; pass an aware datetime"),  # noqa: DTZ001
        (datetime(2026, 1, 1, tzinfo=Nowhere()), "has no time zone; pass an aware datetime"),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))), "outside the years 1 to 9999 in UTC"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "outside the years 1 to 9999 in UTC"),
        (1_767_225_600, "run_at must be a datetime, got 1767225600"),
        ("2026-01-01T00:00:00Z", "run_at must be a datetime, got '2026-01-01T00:00:00Z'"),
        (None, "run_at must be a datetime, got None"),
        (datetime(2026, 1, 1, tzinfo=UTC).date(), "run_at must be a datetime, got a date"),
    ],
)
def test_what_is_no_instant_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        checked_instant(value, "run_at")


@pytest.mark.parametrize(
    "value", ["a", "mail", "mail.send", "a-b_c:d@e/f+g", "7", "_x", "Größe", "почта", "任务", "x" * 128]
)
def test_words_and_dotted_names_are_names(value: str) -> None:
    assert checked_name(value, "queue") == value


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "a b", " a", "a ", "a\n", "\n", "a\tb", "a\0", "\ud800", "a\u202eb", "a\u200bb", "a\xa0b"),
        *(".", "..", "../etc/passwd", "/etc", "-rf", "--help", "@a", ":a", "+a", "a\\b", "~"),
        *(
            "a'; DROP TABLE task; --",
            'a"',
            "a`",
            "<script>",
            "a&b",
            "a?b=c",
            "a#b",
            "a%00",
            "{{a}}",
            "${a}",
            "$a",
        ),
        *("a*", "a,b", "a;b", "a|b", "(a)", "[a]", "a=b", "e\u0301", "\U0001f40e", "a\x1b[2J"),
        *(None, 1, True, b"a", ["a"]),
        "x" * 129,
        pytest.param("x" * 1_000_000, id="endless"),
        pytest.param("x" * 127 + "\n", id="long line"),
    ],
    ids=ascii,
)
def test_anything_else_is_no_name(value: object) -> None:
    with pytest.raises(
        InvalidOption, match=r"the queue .* is not a valid name: use 1 to 128 letters, digits"
    ) as caught:
        checked_name(value, "queue")

    assert str(caught.value).isprintable()
    assert str(caught.value).encode()
    assert len(str(caught.value)) < 300


@given(st.text(max_size=200))
def test_a_name_is_printable_and_short(value: str) -> None:
    try:
        checked_name(value, "queue")
    except InvalidOption:
        return

    assert value.isprintable()
    assert 1 <= len(value) <= 128


def test_several_names_come_as_a_tuple() -> None:
    assert checked_names(["card", "cvv"], "secret") == ("card", "cvv")


def test_one_text_is_not_read_as_its_letters() -> None:
    with pytest.raises(
        InvalidOption, match=r"secret must be a sequence of names; for a single one pass \['card'\]"
    ):
        checked_names("card", "secret")


def test_a_number_is_no_sequence_of_names() -> None:
    with pytest.raises(InvalidOption, match="secret must be a sequence of names, got 5"):
        checked_names(cast("Any", 5), "secret")


@pytest.mark.parametrize("wrong", [[1], [""], [None]])
def test_what_is_no_name_is_refused_among_names(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="secret must be names"):
        checked_names(wrong, "secret")
