"""Statements with named slots: filled completely, or not at all."""

import pytest

from windlass._stores.statements import fill, load, slots_of


def test_every_slot_is_filled_wherever_it_occurs() -> None:
    text = "SELECT /* :columns */ FROM task WHERE /* :where */ OR NOT (/* :where */)"

    assert slots_of(text) == {"columns", "where"}
    assert fill(text, {"columns": "id", "where": "a = 1"}) == "SELECT id FROM task WHERE a = 1 OR NOT (a = 1)"


def test_a_text_without_slots_is_left_alone() -> None:
    assert fill("SELECT 1 /* one */", {}) == "SELECT 1 /* one */"


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ({}, "no value for where"),
        ({"where": "TRUE", "wher": "a"}, "no slot named wher"),
        ({"where": "/* :deeper */"}, "the value for where has a slot itself"),
    ],
    ids=["missing", "unknown", "nested"],
)
def test_slots_that_do_not_match_are_an_error(slots: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fill("SELECT 1 WHERE /* :where */", slots)


def test_values_are_not_read_as_patterns() -> None:
    assert fill("/* :a */", {"a": r"\1 \g<0>"}) == r"\1 \g<0>"


def test_comment_lines_are_left_out_when_a_statement_is_loaded() -> None:
    text = load("windlass._stores.sqlite", "key")

    assert "--" not in text
    assert text.startswith("SELECT")
