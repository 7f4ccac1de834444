"""Where a document has something secret."""

from typing import Any

import pytest

from windlass._policy.secrets.places import named_places, repeated_below, repeated_places
from windlass._policy.secrets.values import MAX_SCRUBBED

VALUES = ("sesame-1", "12345")


@pytest.mark.parametrize(
    ("secret", "places"),
    [
        ("pin", [("pin",), ("card", "pin"), ("all", 0, "pin")]),
        ("card", [("card",)]),
        ("card.pin", [("card", "pin")]),
        ("all.pin", [("all", 0, "pin")]),
        ("all.deep.x", [("all", 2, 0, "deep", "x")]),
        ("other", []),
    ],
)
def test_declared_fields_by_name_and_by_path(secret: str, places: list[Any]) -> None:
    value = {"pin": 1, "card": {"pin": {"pin": 2}, "id": 3}, "all": [{"pin": None}, 4, [{"deep": {"x": 1}}]]}

    assert [*named_places(value, frozenset([secret]))] == places


@pytest.mark.parametrize("value", [None, 1, "pin", [], {}, ["pin"]])
def test_a_value_without_fields_has_no_named_places(value: Any) -> None:
    assert [*named_places(value, frozenset(["pin"]))] == []


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ("open sesame-1!", [()]),
        (12345, [()]),
        (123456, []),
        (["a", "sesame-1", [12345]], [(1,), (2, 0)]),
        ({"a": {"b": "sesame-1"}, "c": [{"d": "sesame-1"}, 1]}, [("a", "b"), ("c", 0, "d")]),
        ({"a": {"sesame-1": 1, "b": "sesame-1"}}, [("a",)]),
        ({"sesame-1": 1}, [()]),
        ({"a": True}, []),
    ],
)
def test_what_repeats_a_value(value: Any, places: list[Any]) -> None:
    assert [*repeated_places(value, VALUES)] == places
    assert [*repeated_places(value, ())] == []


def test_nothing_is_rebuilt_where_no_text_repeats_a_value_that_is_no_number() -> None:
    assert [*repeated_places({"a": ["b", 12345]}, ("sesame-1",))] == []


def test_of_an_object_that_stays_one_the_fields_are_searched_and_not_their_names() -> None:
    value = {"sesame-1": 1, "a": {"b": ["sesame-1"]}, "c": "sesame-1", "d": {"sesame-1": 1}}

    assert [*repeated_below(value, VALUES)] == [("a", "b", 0), ("c",), ("d",)]


def test_of_more_values_than_can_be_searched_for_every_field_may_have_one() -> None:
    many = tuple(f"value-{number}" for number in range(MAX_SCRUBBED + 1))

    assert [*repeated_below({"a": 1, "b": {"c": 2}}, many)] == [("a",), ("b",)]
    assert [*repeated_places({"a": 1}, many)] == [()]
