"""Rates as token buckets."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy import rate

RATES = st.floats(0.001, 1e6)


@given(RATES, st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 3)), max_size=60), st.floats(0, 1e6))
def test_within_any_time_at_most_a_burst_and_the_rate_pass(
    limit: float, requests: list[tuple[float, float]], began: float
) -> None:
    """Requests come after pauses of so many seconds; each costs so many seconds' worth."""
    full_at, now = 0.0, began
    passed: list[tuple[float, float]] = []
    for pause, share in requests:
        now += pause
        cost = share * limit
        if rate.wait(full_at, limit, cost, now) == 0:
            full_at = rate.draw(full_at, limit, cost, now)
            passed.append((now, cost))
    for first, (start, _) in enumerate(passed):
        total = 0.0
        for end, cost in passed[first:]:
            total += cost
            assert total <= rate.burst(limit) + limit * (end - start + 1e-5) + 1e-6


@given(RATES, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e6))
def test_who_waits_as_told_passes(limit: float, used: float, share: float, now: float) -> None:
    most = rate.burst(limit)
    full_at = rate.draw(0.0, limit, used * most, now)
    seconds = rate.wait(full_at, limit, share * most, now)
    assert rate.wait(full_at, limit, share * most, now + seconds + 1e-6) == 0


@pytest.mark.parametrize(("limit", "most"), [(0.1, 1), (1, 1), (3, 3), (2.5, 2.5)])
def test_a_bucket_holds_a_second_and_at_least_one(limit: float, most: float) -> None:
    assert rate.burst(limit) == most
    assert rate.left(0.0, limit, 1000.0) >= most
    assert rate.wait(0.0, limit, most, 1000.0) == 0
    assert rate.wait(0.0, limit, most + 0.1, 1000.0) == inf
    empty = rate.draw(0.0, limit, most, 1000.0)
    assert rate.left(empty, limit, 1000.0) == pytest.approx(0, abs=1e-4)
    assert rate.refill(empty, limit, 1000.0) == pytest.approx(most / limit, abs=1e-4)
    assert rate.refill(0.0, limit, 1000.0) == 0


def test_a_raised_rate_counts_from_now_on() -> None:
    empty = rate.draw(0.0, 0.001, 1, 1000.0)
    assert rate.wait(empty, 100, 1, 1000.0) == pytest.approx(0.01)
