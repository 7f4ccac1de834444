"""Fingerprints: which unique tasks are equal, and what the options say about it."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from windlass._policy.input.fingerprint import (
    check_fields,
    checked_unique,
    declared_unique,
    fingerprint,
    fingerprint_like,
    fingerprint_within,
    is_fingerprint,
    masked_fingerprint,
    unique_options,
)
from windlass.errors import InvalidOption

HOUR = timedelta(hours=1)
words = st.text("ab|:/", max_size=4)


def test_a_fingerprint_is_of_type_payload_priority_and_tenant() -> None:
    same = fingerprint(True, "a", b'{"x":1,"y":2}', 0, "t")
    different = [
        fingerprint(True, "b", b'{"x":1,"y":2}', 0, "t"),
        fingerprint(True, "a", b'{"x":1,"y":3}', 0, "t"),
        fingerprint(True, "a", b'{"x":1,"y":2}', 1, "t"),
        fingerprint(True, "a", b'{"x":1,"y":2}', 0, "u"),
    ]

    assert fingerprint(True, "a", b'{"y":2,"x":1}', 0, "t") == same
    assert len({same, *different}) == 5
    assert fingerprint(False, "a", b"{}", 0, "t") is None


def test_by_fields_it_is_of_type_tenant_and_these_fields() -> None:
    same = fingerprint(("x",), "a", b'{"x":1,"y":2}', 0, "t")
    different = [
        fingerprint(("x",), "b", b'{"x":1,"y":2}', 0, "t"),
        fingerprint(("x",), "a", b'{"x":2,"y":2}', 0, "t"),
        fingerprint(("x",), "a", b'{"x":1,"y":2}', 0, "u"),
        fingerprint(("x",), "a", b'{"y":2}', 0, "t"),
        fingerprint(("x",), "a", b'{"x":null,"y":2}', 0, "t"),
        fingerprint(("x", "y"), "a", b'{"x":1,"y":2}', 0, "t"),
        fingerprint(True, "a", b'{"x":1,"y":2}', 0, "t"),
    ]

    assert fingerprint(("x",), "a", b'{"y":3,"x":1}', 5, "t") == same
    assert len({same, *different}) == 8


@given(words, words, words, words)
def test_no_two_ways_of_cutting_a_text_have_the_same_fingerprint(a: str, b: str, c: str, d: str) -> None:
    assume((a, b) != (c, d))

    assert fingerprint(True, a, b"{}", 1, b) != fingerprint(True, c, b"{}", 1, d)
    assert fingerprint(("x",), a, b"{}", 1, b) != fingerprint(("x",), c, b"{}", 1, d)


@pytest.mark.parametrize("unique", [True, ("x",), ("x", "y")])
def test_another_payload_gets_a_fingerprint_of_the_same_kind(unique: Any) -> None:
    old = fingerprint(unique, "a", b'{"x":1,"y":2}', 3, "t")
    new = fingerprint(unique, "a", b'{"x":2,"y":2}', 3, "t")

    assert fingerprint_like(old, "a", b'{"x":2,"y":2}', 3, "t") == new != old
    assert fingerprint_like(old, "a", b'{"y":2,"x":1}', 3, "t") == old


@pytest.mark.parametrize("other", [None, "schedule:nightly"])
def test_one_that_is_not_made_of_the_payload_stays(other: str | None) -> None:
    assert fingerprint_like(other, "a", b'{"x":2}', 3, "t") == other


@pytest.mark.parametrize("text", ["", "f", "0" * 63, "0" * 64 + "x", "0" * 64 + "[]", "0" * 64 + "[1]"])
def test_other_texts_are_no_fingerprints(text: str) -> None:
    assert not is_fingerprint(text)
    assert not is_fingerprint("0" * 64 + '["' + "x" * 1000 + '"]')
    assert is_fingerprint("0" * 64)
    assert is_fingerprint("0" * 64 + '["x"]')


@pytest.mark.parametrize(
    ("options", "declared", "expected"),
    [
        ({}, (False, None), (False, None)),
        ({}, (True, HOUR), (True, HOUR)),
        ({"unique": True}, (False, None), (True, None)),
        ({"unique": ["y", "x", "y"]}, (True, HOUR), (("x", "y"), HOUR)),
        ({"unique": False}, (("x",), HOUR), (False, None)),
        ({"unique_for": "1h"}, (False, None), (True, HOUR)),
        ({"unique_for": 3600}, (("x",), None), (("x",), HOUR)),
        ({"unique_for": None}, (("x",), HOUR), (("x",), None)),
    ],
)
def test_options_override_what_the_type_declares(
    options: Any, declared: tuple[Any, Any], expected: tuple[Any, Any]
) -> None:
    assert unique_options(options, *declared) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique": "user_id"}, r"for a single one pass \['user_id'\]"),
        ({"unique": ()}, "names of payload fields, got"),
        ({"unique": 1}, "names of payload fields, got 1"),
        ({"unique": [1]}, "unique must be names, got 1"),
        ({"unique": ["x" * 1000]}, "longer than 1,000 bytes"),
        ({"unique": False, "unique_for": "1h"}, "unique_for needs unique"),
        ({"unique_for": 0}, "unique_for must be greater than 0"),
        ({"unique_for": "soon"}, "unique_for must be a timedelta"),
    ],
)
def test_senseless_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        unique_options(options, False, None)


def test_an_unknown_field_is_refused_with_the_one_that_was_probably_meant() -> None:
    check_fields(checked_unique(("user_id",)), {"user_id"}, "the payload")
    with pytest.raises(InvalidOption, match=r"'user_ids', which the payload does not have.*user_id"):
        check_fields(("user_ids",), {"user_id", "kind"}, "the payload")


def test_a_type_declares_that_its_tasks_are_unique_by_fields_and_for_a_period() -> None:
    assert declared_unique(unique=False, unique_for=None) == (False, None)
    assert declared_unique(unique=["a"], unique_for="1h") == (("a",), timedelta(hours=1))
    assert declared_unique(unique=False, unique_for="1h") == (True, timedelta(hours=1))


def test_a_fingerprint_within_a_queue_is_one_of_its_own() -> None:
    for unique in (True, ("x",)):
        made = fingerprint(unique, "a", b'{"x":1}', 3, "t")
        assert made is not None
        within = {queue: fingerprint_within(queue, made) for queue in ("a", "b")}
        assert len({made, *within.values()}) == 3
        assert all(map(is_fingerprint, within.values()))
        assert fingerprint_like(within["a"], "a", b'{"x":1}', 3, "t") == made


@pytest.mark.parametrize("unique", [True, ("x",)])
def test_a_masked_fingerprint_says_nothing_of_the_payload_but_how_it_is_unique(unique: Any) -> None:
    one, other = (fingerprint(unique, "a", payload, 0, "t") for payload in (b'{"x":1}', b'{"x":2}'))
    assert one is not None
    assert other is not None
    assert one != other

    masked = masked_fingerprint(one)

    assert masked == masked_fingerprint(other) != one
    assert is_fingerprint(masked)
    assert fingerprint_like(masked, "a", b'{"x":1}', 0, "t") == one


def test_what_is_no_fingerprint_stays_as_it_is() -> None:
    assert masked_fingerprint("schedule nightly") == "schedule nightly"
