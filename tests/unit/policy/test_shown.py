"""Wrong values in messages: short, printable, and never the cause of another error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.input.quoting import cut, kind_of, printable, shown


class Angry:
    def __repr__(self) -> str:
        raise AssertionError("nobody may ask")


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
        (Angry(), "an Angry"),
        (type("", (), {})(), "a "),
    ],
)
def test_text_and_small_numbers_are_shown_as_written_and_the_rest_by_type(
    value: object, expected: str
) -> None:
    assert shown(value) == expected


@given(st.text() | st.integers() | st.floats() | st.binary() | st.lists(st.text()))
def test_whatever_is_shown_is_short_and_printable(value: object) -> None:
    assert len(shown(value)) < 1_000
    assert shown(value).isprintable()
    assert shown(value).encode()


@given(st.text(), st.integers(3, 20))
def test_a_cut_text_keeps_to_its_length_and_its_ends(text: str, most: int) -> None:
    short = cut(text, most)

    assert len(short) <= most
    assert short == text or (text.startswith(short[0]) and text.endswith(short[-1]) and "…" in short)


def test_a_kind_has_its_article() -> None:
    assert [kind_of(value) for value in (1, "a", b"a", {})] == ["an int", "a str", "a bytes", "a dict"]


@given(st.text())
def test_printable_text_is_left_alone_and_the_rest_escaped(text: str) -> None:
    assert printable(text).isprintable()
    assert text.isprintable() is (printable(text) == text)
