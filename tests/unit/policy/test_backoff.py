"""Backoff: delays follow their formula, stay within their bounds and never overflow."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.backoff import ADDITIVE, EXPONENTIAL, PATIENT, QUICK, Backoff, checked_attempts
from windlass.errors import InvalidOption

MIDDLE = 0.5
NEARLY_ONE = math.nextafter(1, 0)

draws = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10_000) | st.just(10**18)
backoffs = st.builds(
    Backoff,
    base=st.floats(0, 1e6) | st.integers(0, 1_000_000),
    factor=st.floats(1, 1000) | st.integers(1, 1000),
    cap=st.floats(0, 1e6) | st.integers(0, 1_000_000),
    jitter=st.floats(0, 1),
    spread=st.floats(0, 1e6),
)


def seconds(backoff: Backoff, draw: float, up_to: int) -> list[float]:
    return [backoff(attempt, draw).total_seconds() for attempt in range(1, up_to + 1)]


def test_exponential_is_two_to_the_n_times_a_jitter_capped_at_an_hour() -> None:
    assert seconds(EXPONENTIAL, MIDDLE, 14) == [min(2**n, 3600) for n in range(1, 15)]
    assert seconds(EXPONENTIAL, 0, 3) == [1, 2, 4]
    assert seconds(EXPONENTIAL, NEARLY_ONE, 3) == pytest.approx([3, 6, 12])


def test_quick_is_1_2_4_8_16_seconds_and_then_dead() -> None:
    assert seconds(QUICK, 0, 5) == seconds(QUICK, NEARLY_ONE, 5) == [1, 2, 4, 8, 16]
    assert QUICK.max_attempts == 6


def test_patient_is_30_seconds_doubled_capped_at_half_an_hour_with_jitter() -> None:
    curve = [30, 60, 120, 240, 480, 960, 1800, 1800]
    assert seconds(PATIENT, MIDDLE, 8) == curve
    assert seconds(PATIENT, 0, 8) == [0.75 * one for one in curve]
    assert seconds(PATIENT, NEARLY_ONE, 8) == pytest.approx([1.25 * one for one in curve])


def test_additive_is_two_to_the_n_and_up_to_a_second_more() -> None:
    assert seconds(ADDITIVE, 0, 5) == [2, 4, 8, 16, 32]
    assert seconds(ADDITIVE, MIDDLE, 5) == [2.5, 4.5, 8.5, 16.5, 32.5]
    assert seconds(ADDITIVE, NEARLY_ONE, 12) == pytest.approx([min(2**n, 3600) + 1 for n in range(1, 13)])


@given(backoffs, attempts, draws)
def test_a_delay_stays_within_its_bounds(backoff: Backoff, attempt: int, draw: float) -> None:
    delay = backoff(attempt, draw)
    most = timedelta(seconds=backoff.cap * (1 + backoff.jitter) + backoff.spread)

    assert timedelta(0) <= delay <= most + timedelta(microseconds=1)


@given(backoffs, attempts, attempts, draws)
def test_a_later_attempt_never_waits_less(backoff: Backoff, one: int, other: int, draw: float) -> None:
    earlier, later = sorted((one, other))

    assert backoff(earlier, draw) <= backoff(later, draw)


@given(backoffs, attempts)
def test_jitter_spreads_evenly_around_the_middle(backoff: Backoff, attempt: int) -> None:
    least, middle, most = (backoff(attempt, draw).total_seconds() for draw in (0, 0.5, NEARLY_ONE))

    assert least + most == pytest.approx(2 * middle, abs=1e-5)


@pytest.mark.parametrize("factor", [2, 2.0, 1000, 1])
def test_a_huge_attempt_waits_for_the_cap_at_most(factor: float) -> None:
    assert Backoff(factor=factor, cap=60, jitter=0)(10**18, 0) in (timedelta(seconds=1), timedelta(minutes=1))


def test_nothing_stays_nothing_however_often_it_is_multiplied() -> None:
    assert Backoff(base=0)(10**18, MIDDLE) == timedelta(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": -1},
        {"base": math.nan},
        {"base": math.inf},
        {"base": "1"},
        {"base": None},
        {"base": True},
        {"base": 10**5000},
        {"factor": 0.5},
        {"factor": 1001},
        {"cap": -1},
        {"cap": 1e12},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"spread": -1},
        {"max_attempts": 0},
        {"max_attempts": 10_001},
        {"max_attempts": 2.5},
        {"max_attempts": True},
        {"max_attempts": timedelta(1)},
    ],
)
def test_a_parameter_out_of_bounds_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=f"a backoff's {next(iter(wrong))} must be from") as caught:
        Backoff(**wrong)

    assert len(str(caught.value)) < 200


def test_the_edges_are_allowed() -> None:
    assert Backoff(base=0, factor=1, cap=0, jitter=0, spread=0, max_attempts=1)(1, 0) == timedelta(0)
    assert Backoff(factor=1000, jitter=1, max_attempts=10_000)(1, 0) == timedelta(0)


def test_the_number_of_attempts_is_given_or_the_backoffs() -> None:
    assert checked_attempts(3, QUICK) == 3
    assert checked_attempts(None, QUICK) == 6
    assert checked_attempts(None, lambda _attempt, _draw: timedelta(0)) == 8
    with pytest.raises(InvalidOption, match="max_attempts"):
        checked_attempts(0, QUICK)
