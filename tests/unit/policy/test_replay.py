"""How far apart replayed tasks are due."""

from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from windlass import InvalidOption
from windlass._policy.input.replay import check_pace, interval_between, slots_until


@pytest.mark.parametrize(
    ("number", "per_second", "spread", "seconds"),
    [
        (10, None, None, 0),
        (10, 4.0, None, 0.25),
        (600, None, "10m", 1),
        (4, None, 60, 15),
        (4, None, timedelta(seconds=2), 0.5),
        (0, None, "10m", 600),
        (5, None, 0, 0),
    ],
)
def test_tasks_are_spread_evenly(
    number: int, per_second: float | None, spread: timedelta | float | str | None, seconds: float
) -> None:
    check_pace(per_second, spread)

    assert interval_between(number, per_second, spread) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("per_second", "spread", "message"),
    [
        (1.0, "1m", "not both"),
        (0.0, None, "greater than 0"),
        (-1.0, None, "greater than 0"),
        (nan, None, "greater than 0"),
        (inf, None, "greater than 0"),
        (1e-12, None, "ten years"),
        (None, "soon", "spread must be"),
        (None, -1, "from 0 to ten years"),
    ],
)
def test_what_no_replay_can_have_is_refused(
    per_second: float | None, spread: float | str | None, message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        check_pace(per_second, spread)


@pytest.mark.parametrize(("seconds", "number"), [(9, 3), (10, 4), (1, 1), (0, 0)])
def test_slots_end_before_the_closing(seconds: int, number: int) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)

    assert slots_until(at, at + timedelta(seconds=seconds), timedelta(seconds=3)) == number
