"""Options of queues."""

from datetime import timedelta
from typing import Any

import pytest

from windlass import InvalidOption, Retention
from windlass._model.queue import Fairness, Level, Ordering, QueueSettings
from windlass._policy.order.queue_options import changed_queue

PLAIN = QueueSettings(name="mail", paused=True)
FULL = QueueSettings(
    name="mail",
    fairness=Fairness.ROUND_ROBIN,
    weights={"acme": 3, "bob": 2},
    ordering=Ordering(ageing=timedelta(seconds=60), shares={Level.LOW: 10}),
    retention=Retention(dead=None),
)


def change(settings: QueueSettings, **changes: Any) -> QueueSettings:
    made: Any = changes
    return changed_queue(settings, made)


def test_nothing_named_changes_nothing() -> None:
    assert change(PLAIN) == PLAIN
    assert change(FULL) == FULL


def test_words_become_values() -> None:
    made = change(
        PLAIN, fairness="round_robin", weights={"acme": 3}, shares={"low": 10}, ageing="1m", stripes=1
    )

    assert made.fairness is Fairness.ROUND_ROBIN
    assert made.weights == {"acme": 3}
    assert made.ordering == Ordering(ageing=timedelta(minutes=1), shares={Level.LOW: 10})
    assert made.paused


def test_tenants_and_levels_change_one_by_one() -> None:
    made = change(FULL, weights={"bob": None, "eve": 9, "": 2}, shares={Level.HIGH: 50, "low": 5})

    assert made.weights == {"acme": 3, "eve": 9, "": 2}
    assert made.ordering.shares == {Level.LOW: 5, Level.HIGH: 50}
    assert made.ordering.ageing == timedelta(seconds=60)


def test_none_is_the_default() -> None:
    nothing = dict.fromkeys(("fairness", "weights", "shares", "ageing", "retention", "stripes"))

    assert change(FULL, **nothing) == QueueSettings(name="mail")


def test_weights_go_with_round_robin() -> None:
    assert change(FULL, fairness="random").weights == {}


def test_stripes_are_set_and_taken_away() -> None:
    striped = change(PLAIN, stripes=4)

    assert striped.stripes == 4
    assert change(striped, stripes=None).stripes == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fairness": "fair"}, "one of fifo, round_robin, random, got 'fair'"),
        ({"fairness": 3}, "one of fifo"),
        ({"weights": ["acme"]}, "weights must map each tenant to a number, got a list"),
        ({"weights": {"a b": 2}}, "the tenant 'a b' is not a valid name"),
        ({"weights": {"acme": "2"}}, "the weight of 'acme' must be a whole number, got '2'"),
        ({"weights": {"acme": True}}, "whole number, got True"),
        ({"weights": {"acme": 101}}, "1 to 100, got 101"),
        ({"weights": {"acme": 2}}, "weights need round_robin fairness"),
        ({"shares": {"lowest": 2}}, "one of high, medium, low, got 'lowest'"),
        ({"shares": {"": 2}}, "is not a valid name"),
        ({"shares": {"low": 1.5}}, "the share of 'low' must be a whole number"),
        ({"shares": {"low": 100}}, "1 to 99 percent"),
        ({"ageing": "soon"}, "ageing must be"),
        ({"ageing": 0}, "greater than 0"),
        ({"retention": 3}, "retention must be a Retention, got 3"),
        ({"stripes": 65}, "stripes must be a whole number from 1 to 64"),
        ({"fairness": "random", "stripes": 2}, "leave stripes at 1"),
        ({"fairnes": "random"}, "unknown queue option 'fairnes'; the options are fairness, weights"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        change(PLAIN, **changes)


def test_ageing_beyond_a_year_is_refused() -> None:
    with pytest.raises(InvalidOption, match="at most 366 days"):
        changed_queue(QueueSettings(name="mail"), {"ageing": timedelta(days=367)})
