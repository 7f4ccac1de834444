"""Histograms: durations are known to within 9 percent, and adding histograms is adding what is in them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.history.histogram import CELLS, added, cell_of, histogram, quantiles, seconds_of

DURATIONS = st.floats(0.001, 30 * 86_400)


def of(*durations: float) -> tuple[int, ...]:
    return histogram(Counter(map(cell_of, durations)))


@given(DURATIONS)
def test_a_duration_is_known_to_within_9_percent(seconds: float) -> None:
    assert seconds_of(cell_of(seconds)) == pytest.approx(seconds, rel=0.095)


@pytest.mark.parametrize(("seconds", "cell"), [(-1.0, 0), (0.0, 0), (0.001, 1), (1e9, CELLS - 1)])
def test_every_duration_has_a_cell(seconds: float, cell: int) -> None:
    assert cell_of(seconds) == cell
    assert seconds_of(cell) > 0


@given(st.lists(st.lists(DURATIONS, max_size=20), max_size=5))
def test_the_sum_of_histograms_has_all_their_durations(groups: list[list[float]]) -> None:
    assert added(of(*group) for group in groups) == of(*(one for group in groups for one in group))


@given(st.lists(DURATIONS, min_size=1, max_size=200))
def test_quantiles_are_those_of_the_durations(durations: list[float]) -> None:
    percents = (1, 50, 95, 99, 100)
    exact = [sorted(durations)[-(-len(durations) * percent // 100) - 1] for percent in percents]

    found = quantiles(of(*durations), [percent / 100 for percent in percents])

    assert found == pytest.approx(exact, rel=0.095)


def test_nothing_has_no_quantiles() -> None:
    assert quantiles((), (0.5, 0.99)) == []


def test_only_cells_with_durations_are_stored() -> None:
    assert histogram({7: 2, 3: 1, 5: 0}) == (3, 1, 7, 2)
