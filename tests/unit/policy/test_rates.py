"""Rates, as they are written and as they are shown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import InvalidOption
from windlass._policy.order.rates import format_rate, parse_rate

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("written", "rate"),
    [("10/s", 10), ("90/m", 1.5), ("36/h", 0.01), ("7", 7), ("2.5/s", 2.5), (3, 3), (0.25, 0.25)],
)
def test_a_rate_is_starts_a_second(written: Any, rate: float) -> None:
    assert parse_rate(written) == rate


@pytest.mark.parametrize(
    "written",
    [
        "0/s",
        "-1/s",
        "10/d",
        "10 /s",
        "ten",
        "",
        "1e3",
        "\u0661/s",
        "9" * 12,
        0,
        -2,
        True,
        None,
        [5],
        NAN,
        INF,
    ],
)
def test_what_is_no_rate_is_refused(written: Any) -> None:
    with pytest.raises(InvalidOption, match='text like "10/s", "100/m", "5/h", not'):
        parse_rate(written)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (10, "10/s"),
        (1.5, "90/m"),
        (100 / 60, "100/m"),
        (5 / 3600, "5/h"),
        (1_000_000, "1000000/s"),
        (2.3456789, "2.34568/s"),
        (0.1234567, "7.4074/m"),
        (1e-5, "0.036/h"),
    ],
)
def test_a_rate_is_shown_in_the_unit_that_fits(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@given(st.integers(1, 100_000), st.sampled_from("smh"))
def test_what_is_shown_says_the_same(number: int, unit: str) -> None:
    rate = parse_rate(f"{number}/{unit}")

    assert parse_rate(format_rate(rate)) == pytest.approx(rate)
