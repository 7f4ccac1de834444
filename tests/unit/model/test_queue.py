"""A queue's settings: levels and their shares, fairness and its weights."""

from typing import Any

import pytest

from windlass._model.queue import MAX_WEIGHT, Fairness, Level, Ordering, QueueSettings, Window, level_of
from windlass.errors import InvalidOption

HIGH, MEDIUM, LOW = Level


@pytest.mark.parametrize(("priority", "level"), [(100, HIGH), (1, HIGH), (0, MEDIUM), (-1, LOW), (-100, LOW)])
def test_a_level_is_a_priority_seen_from_afar(priority: int, level: Level) -> None:
    assert level_of(priority) is level


@pytest.mark.parametrize(
    "shares",
    [{}, {LOW: 1}, {LOW: 99}, {HIGH: 80, LOW: 19}, {HIGH: 70, MEDIUM: 20, LOW: 10}, {HIGH: 1, LOW: 1}],
)
def test_shares_leave_something_to_every_level(shares: dict[Level, int]) -> None:
    assert Ordering(shares=shares).shares == shares


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({LOW: 0}, "from 1 to 99 percent, got"),
        ({LOW: 100}, "1 to 99 percent"),
        ({LOW: -5, HIGH: 5}, "1 to 99 percent"),
        ({LOW: 0.2}, "1 to 99 percent"),
        ({LOW: "20"}, "1 to 99 percent"),
        ({HIGH: 80, LOW: 20}, "shares of 100 percent leave nothing for medium; set all levels"),
        ({HIGH: 99, LOW: 99}, "shares of 198 percent leave nothing for medium"),
        ({HIGH: 80, MEDIUM: 10, LOW: 5}, "add up to 100 percent, got 95"),
        ({HIGH: 80, MEDIUM: 10, LOW: 20}, "add up to 100 percent, got 110"),
    ],
)
def test_shares_that_do_not_add_up_are_refused(shares: dict[Level, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Ordering(shares=shares)


@pytest.mark.parametrize("weight", [0, -1, MAX_WEIGHT + 1, 1.5, "2", None])
def test_a_weight_is_a_small_whole_number(weight: Any) -> None:
    with pytest.raises(InvalidOption, match="weight of tenant 'acme' must be from 1 to 100, got"):
        QueueSettings(name="mail", fairness=Fairness.ROUND_ROBIN, weights={"acme": weight})


@pytest.mark.parametrize("fairness", [Fairness.FIFO, Fairness.RANDOM])
def test_weights_are_for_turns(fairness: Fairness) -> None:
    with pytest.raises(
        InvalidOption, match=f"weights need round_robin fairness; queue 'mail' is {fairness.value}"
    ):
        QueueSettings(name="mail", fairness=fairness, weights={"acme": 2})


@pytest.mark.parametrize(
    "lanes",
    [
        {"fairness": Fairness.ROUND_ROBIN},
        {"fairness": Fairness.RANDOM},
        {"ordering": Ordering(shares={LOW: 20})},
    ],
)
def test_a_queue_has_lanes_or_stripes_but_not_both(lanes: dict[str, Any]) -> None:
    assert QueueSettings(name="mail", **lanes).is_laned
    assert not QueueSettings(name="mail", stripes=4).is_laned
    with pytest.raises(InvalidOption, match="'mail' has lanes"):
        QueueSettings(name="mail", stripes=2, **lanes)


def test_weights_up_to_the_bound_are_kept() -> None:
    weights = {"": 1, "acme": MAX_WEIGHT}

    assert QueueSettings(name="mail", fairness=Fairness.ROUND_ROBIN, weights=weights).weights == weights


@pytest.mark.parametrize(
    "wrong",
    [
        {"opens": -1, "closes": 60},
        {"opens": 60, "closes": 1441},
        {"opens": 60, "closes": 60},
        {"opens": 60, "closes": 120, "days": ()},
        {"opens": 60, "closes": 120, "days": (7,)},
    ],
)
def test_a_window_that_never_opens_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="window"):
        Window(**wrong)
