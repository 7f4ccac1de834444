"""Fair shares: in turn, at random, or in proportion; no lane starves, and idle ones save up nothing."""

from collections import Counter
from collections.abc import Iterable
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.order.share import (
    RoundPlan,
    RoundPosition,
    advance,
    random_picks,
    round_robin,
    split_picks,
)

ALMOST_ONE = 1 - 2**-53
NOISE = 1e-9

weights = st.integers(1, 100)
rooms = st.lists(st.integers(1, 50), min_size=1, max_size=20)
lanes = st.dictionaries(st.text("abc", max_size=3), weights, min_size=1, max_size=8)
few = st.dictionaries(st.sampled_from("abcdefgh"), weights, min_size=1)


# -- in turn -----------------------------------------------------------------------------------------


def rounds(
    weights: dict[str, int], rooms: Iterable[int], turn: RoundPosition
) -> tuple[Counter[str], RoundPosition]:
    """What each lane gets of so many claims."""
    got = Counter[str]()
    for room in rooms:
        plan = round_robin(sorted(weights), turn, weights.__getitem__, room)
        assert sum(plan.quotas.values()) == room
        got.update(plan.quotas)
        turn = plan.turn
    return got, turn


@given(lanes, rooms, st.text("abc", max_size=3))
def test_every_lane_is_within_a_turn_of_its_proportion(
    lanes: dict[str, int], rooms: list[int], start: str
) -> None:
    got, _ = rounds(lanes, rooms, RoundPosition(start))

    for lane, weight in lanes.items():
        assert abs(got[lane] - sum(rooms) * weight / sum(lanes.values())) <= weight


@given(lanes, rooms, st.text("abc", max_size=3))
def test_a_round_goes_on_where_it_stopped(lanes: dict[str, int], rooms: list[int], start: str) -> None:
    assert rounds(lanes, rooms, RoundPosition(start)) == rounds(lanes, [sum(rooms)], RoundPosition(start))


@given(
    lanes,
    lanes,
    st.lists(st.tuples(st.sets(st.text("abc", max_size=3)), st.integers(1, 50)), min_size=1, max_size=20),
)
def test_lanes_that_come_and_go_disturb_no_other_by_more_than_a_turn(
    lanes: dict[str, int], passing: dict[str, int], claims: list[tuple[set[str], int]]
) -> None:
    weights, got, turn = passing | lanes, Counter[str](), RoundPosition()
    for present, room in claims:
        plan = round_robin(sorted({*lanes, *(present & set(passing))}), turn, weights.__getitem__, room)
        got.update(plan.quotas)
        turn = plan.turn

    turns = [got[lane] / weights[lane] for lane in lanes]
    assert max(turns) - min(turns) <= 1 + NOISE


def test_turns_are_in_the_order_of_the_names_and_the_last_is_followed_by_the_first() -> None:
    first = round_robin("abc", RoundPosition("a"), {"a": 1, "b": 2, "c": 1}.__getitem__, 2)
    then = round_robin("abc", first.turn, {"a": 1, "b": 2, "c": 1}.__getitem__, 3)

    assert [*first.quotas.items()] == [("b", 2)]
    assert [*then.quotas.items()] == [("c", 1), ("a", 1), ("b", 1)]
    assert then.turn == RoundPosition("b", 1)


def test_the_rest_of_a_turn_is_lost_with_its_lane() -> None:
    assert round_robin("ac", RoundPosition("b", 5), lambda _: 1, 1).quotas == {"c": 1}
    assert round_robin("ab", RoundPosition("c", 5), lambda _: 1, 1).quotas == {"a": 1}


@pytest.mark.parametrize(("lanes", "room"), [("", 5), ("ab", 0), ("ab", -1)])
def test_nothing_to_share_out_moves_nobodys_turn(lanes: str, room: int) -> None:
    assert round_robin(lanes, RoundPosition("b", 3), lambda _: 1, room) == RoundPlan(
        {}, RoundPosition("b", 3)
    )


# -- by lot ------------------------------------------------------------------------------------------

sizes = st.dictionaries(st.text("abc", max_size=3), st.just(0) | st.integers(0, 1000), max_size=8)
draws = st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, ALMOST_ONE])


@given(sizes, st.lists(draws, max_size=20))
def test_every_draw_hits_a_lane_that_has_something(sizes: dict[str, int], draws: list[float]) -> None:
    quotas = random_picks(sizes, draws)

    assert sum(quotas.values()) == (len(draws) if any(sizes.values()) else 0)
    assert all(sizes[lane] and quota for lane, quota in quotas.items())


@given(sizes, st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_who_has_more_waiting_is_drawn_more_often(sizes: dict[str, int], number: int, offset: float) -> None:
    quotas = random_picks(sizes, [min((n + offset) / number, ALMOST_ONE) for n in range(number)])

    total = sum(sizes.values())
    for lane, size in sizes.items():
        if total:
            assert abs(quotas.get(lane, 0) - number * size / total) <= 1 + NOISE


def test_the_lowest_draw_is_the_first_ticket_and_the_highest_the_last() -> None:
    assert random_picks({"empty": 0, "a": 1, "b": 999, "none": 0}, [0.0, ALMOST_ONE]) == {"a": 1, "b": 1}


# -- in proportion -----------------------------------------------------------------------------------


def shared_out(weights: dict[str, int], rooms: Iterable[int]) -> tuple[Counter[str], dict[str, float]]:
    """What each gets of so many claims, if all have enough."""
    got, passes = Counter[str](), dict[str, float]()
    for room in rooms:
        picks = split_picks(room, weights, passes)
        assert sum(picks.values()) == room
        passes = advance(weights, passes, picks, ())
        got.update(picks)
    return got, passes


@given(few, rooms)
def test_nobody_is_more_than_a_pick_ahead_of_another_for_any_weights_and_batches(
    weights: dict[str, int], rooms: list[int]
) -> None:
    got, _ = shared_out(weights, rooms)

    for one, weight in weights.items():
        for other, other_weight in weights.items():
            assert (got[one] - 1) * other_weight <= got[other] * weight
        assert got[one] <= sum(rooms) * weight / sum(weights.values()) + 1


@given(few, st.integers(0, 500))
def test_everyone_is_picked_again_soon_whatever_came_before(weights: dict[str, int], before: int) -> None:
    _, passes = shared_out(weights, [before])

    for name, weight in weights.items():
        soon = sum(other // weight + 1 for other in weights.values())
        assert split_picks(soon, weights, passes)[name]


@given(few, rooms, st.integers(1, 200))
def test_who_had_too_little_saves_nothing_up(weights: dict[str, int], rooms: list[int], after: int) -> None:
    weights = {"idle": 7, **weights}
    passes: dict[str, float] = {}
    for room in rooms:
        picks = split_picks(
            room, {name: weight for name, weight in weights.items() if name != "idle"}, passes
        )
        passes = advance(weights, passes, picks, ["idle"])

    assert split_picks(after, weights, passes)["idle"] <= ceil(after * 7 / sum(weights.values())) + 1


def test_who_took_more_than_its_share_before_it_ran_short_is_still_ahead() -> None:
    assert advance({"a": 1, "b": 1}, {}, {"a": 3, "b": 1}, ["a"]) == {"a": 2.0, "b": 0.0}


def test_where_all_ran_short_all_begin_anew() -> None:
    assert advance({"a": 1, "b": 2}, {"a": 5.0}, {"a": 1, "b": 1}, ["a", "b"]) == {"a": 0.0, "b": 0.0}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 2, 4, 8]), min_size=1),
    st.integers(1, 100),
    st.lists(st.integers(0, 64), min_size=4, max_size=4),
    st.integers(1, 10_000),
)
def test_only_differences_count(weights: dict[str, int], room: int, eighths: list[int], further: int) -> None:
    passes = {name: eighth / 8 for name, eighth in zip("abcd", eighths, strict=True)}
    moved = {name: come + further for name, come in passes.items()}

    picks = split_picks(room, weights, passes)
    assert split_picks(room, weights, moved) == picks
    assert advance(weights, moved, picks, ()) == advance(weights, passes, picks, ())


@given(few, rooms)
def test_the_account_does_not_grow_with_the_picks(weights: dict[str, int], rooms: list[int]) -> None:
    _, passes = shared_out(weights, rooms)

    assert min(passes.values()) == 0.0
    assert all(come <= 1 / weights[name] + NOISE for name, come in passes.items())


def test_nobody_shares_nothing() -> None:
    assert split_picks(5, {}, {}) == {}
    assert advance({}, {}, {}, ()) == {}
    assert split_picks(0, {"a": 1}, {}) == {"a": 0}
