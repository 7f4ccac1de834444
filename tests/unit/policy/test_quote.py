"""Values in error messages are short and printable, and never raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.input.quote import counted, first_named, kind_of, printable, quoted, shorten


class Unprintable:
    def __repr__(self) -> str:
        raise AssertionError("repr was called")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        ("a\n", r"'a\n'"),
        (-(1 << 63), "-9223372036854775808"),
        pytest.param(10**5000, "an int", id="endless number"),
        ([1], "a list"),
        (Unprintable(), "an Unprintable"),
        (type("", (), {})(), "a "),
    ],
)
def test_text_and_small_numbers_are_quoted_as_literals_and_the_rest_by_type(
    value: object, expected: str
) -> None:
    assert quoted(value) == expected


def test_of_many_names_the_first_are_named_and_the_others_counted() -> None:
    assert first_named([], 2) == ""
    assert first_named(["a", "b"], 2) == "a, b"
    assert first_named(["a", "b", "c"], 2) == "a, b and 1 more"


@given(st.text() | st.integers() | st.floats() | st.binary() | st.lists(st.text()))
def test_every_quoted_value_is_short_and_printable(value: object) -> None:
    assert len(quoted(value)) < 1_000
    assert quoted(value).isprintable()
    assert quoted(value).encode()


@given(st.text(), st.integers(3, 20))
def test_a_shortened_text_keeps_its_ends_and_fits_the_limit(text: str, limit: int) -> None:
    short = shorten(text, limit)

    assert len(short) <= limit
    assert short == text or (text.startswith(short[0]) and text.endswith(short[-1]) and "…" in short)


def test_a_type_has_its_article() -> None:
    assert [kind_of(value) for value in (1, "a", b"a", {})] == ["an int", "a str", "a bytes", "a dict"]


@given(st.text())
def test_printable_text_is_left_alone_and_the_rest_escaped(text: str) -> None:
    assert printable(text).isprintable()
    assert text.isprintable() is (printable(text) == text)


def test_a_counted_noun_is_singular_for_one_alone() -> None:
    assert [counted(number, "task") for number in (0, 1, 2, 1_000)] == [
        "0 tasks",
        "1 task",
        "2 tasks",
        "1,000 tasks",
    ]
    assert [counted(number, "query", "queries") for number in (1, 2)] == ["1 query", "2 queries"]
