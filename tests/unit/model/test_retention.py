"""Retention: each final state has its own, and unfinished tasks are never pruned."""

from datetime import timedelta

import pytest

from tests.unit.samples import NOW
from windlass._model.queue import Retention
from windlass._model.state import ENDED, State

DAY = timedelta(days=1)
DIFFERENT = Retention(completed=DAY, cancelled=2 * DAY, dead=3 * DAY)


@pytest.mark.parametrize(
    ("state", "kept"), [(State.COMPLETED, DAY), (State.CANCELLED, 2 * DAY), (State.DEAD, 3 * DAY)]
)
def test_each_end_is_kept_for_its_own_time(state: State, kept: timedelta) -> None:
    assert DIFFERENT.horizon(state, NOW) == NOW - kept


@pytest.mark.parametrize("state", sorted(set(State) - ENDED))
def test_what_has_not_ended_is_never_pruned(state: State) -> None:
    assert DIFFERENT.horizon(state, NOW) is None


@pytest.mark.parametrize("state", sorted(ENDED))
def test_none_keeps_for_ever(state: State) -> None:
    assert Retention(completed=None, cancelled=None, dead=None).horizon(state, NOW) is None


def test_longer_than_the_calendar_is_for_ever() -> None:
    assert Retention(dead=timedelta.max).horizon(State.DEAD, NOW) is None


def test_nothing_is_pruned_by_default_before_a_week_and_dead_letters_stay_two() -> None:
    horizons = {state: Retention().horizon(state, NOW) for state in ENDED}

    assert horizons == {
        State.COMPLETED: NOW - 7 * DAY,
        State.CANCELLED: NOW - 7 * DAY,
        State.DEAD: NOW - 14 * DAY,
    }
