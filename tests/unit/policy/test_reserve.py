"""Reserved slots: they stay free for their level, whatever arrives in whatever order."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import InvalidOption
from windlass._model.queue import Level
from windlass._policy.order.reserve import Reserve, new_reserve

NOTHING: Counter[Any] = Counter()


def test_of_any_level_only_what_is_shared_is_asked_for() -> None:
    reserve = new_reserve(8, {"low": 2, "high": 1})

    assert reserve.room(None, NOTHING, NOTHING) == 5
    assert reserve.room(Level.LOW, NOTHING, NOTHING) == 2
    assert reserve.room(Level.HIGH, NOTHING, NOTHING) == 1
    assert reserve.room(Level.MEDIUM, NOTHING, NOTHING) == 0


def test_a_level_uses_its_own_slots_before_the_shared_ones() -> None:
    reserve = new_reserve(8, {"low": 2})

    assert reserve.room(None, {Level.LOW: 2}, NOTHING) == 6
    assert reserve.room(None, {Level.LOW: 3}, NOTHING) == 5
    assert reserve.room(None, {Level.LOW: 1}, {Level.LOW: 2, None: 1}) == 4


def test_claims_are_for_what_has_slots() -> None:
    assert new_reserve(4, {}).levels == (None,)
    assert new_reserve(4, {"low": 1}).levels == (Level.LOW, None)
    assert new_reserve(4, {"low": 1, Level.HIGH: 3}).levels == (Level.LOW, Level.HIGH)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"lowest": 1}, "one of high, medium, low"),
        ({"low": 0}, "must be 1 or more"),
        ({"low": "1"}, "must be 1 or more"),
        ({"low": True}, "must be 1 or more"),
        ({"low": 5}, "cannot reserve 5 slots of 4"),
        (["low"], "reserve must map levels to numbers of slots, got a list"),
    ],
)
def test_what_makes_no_sense_is_refused(kept: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        new_reserve(4, kept)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from([None, *Level]), st.integers(1, 10)),
        st.tuples(st.just("answer"), st.integers(0, 20), st.lists(st.sampled_from([*Level]), max_size=10)),
        st.tuples(st.just("end"), st.sampled_from([*Level]), st.just(0)),
    ),
    max_size=60,
)


def overrun(reserve: Reserve, held: Counter[Level]) -> int:
    """How many of the shared slots are taken beyond what there are."""
    beyond = sum(max(held[level] - reserve.reserved.get(level, 0), 0) for level in Level)
    return beyond - reserve.shared


@given(st.integers(1, 8), st.integers(0, 4), st.integers(0, 4), STEPS)
def test_what_is_kept_stays_kept(slots: int, low: int, high: int, steps: list[Any]) -> None:
    kept = {level: number for level, number in ((Level.LOW, low), (Level.HIGH, high)) if number}
    reserve = Reserve(slots + low + high, kept)
    held: Counter[Level] = Counter()
    asked: Counter[Level | None] = Counter()
    claims: list[tuple[Level | None, int]] = []
    for verb, which, much in steps:
        if verb == "ask":
            number = min(reserve.room(which, held, asked), much)
            if number > 0:
                claims.append((which, number))
                asked[which] += number
        elif verb == "answer" and claims:
            level, number = claims.pop(which % len(claims))
            asked[level] -= number
            held.update([level] * min(number, len(much)) if level else much[:number])
        elif verb == "end" and held[which]:
            held[which] -= 1
        assert overrun(reserve, held) <= 0
        assert held.total() <= reserve.slots
