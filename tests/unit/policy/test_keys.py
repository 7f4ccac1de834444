"""Keys: the same request has the same key, a different one has not."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from windlass._policy.input.keys import (
    MAX_KEY_BYTES,
    checked_key,
    external_key,
    request_digest,
)
from windlass.errors import InvalidOption

words = st.text("ab|:/", max_size=4)


@pytest.mark.parametrize(
    "key", ["a", "order-1", "ключ", "a b", "x" * MAX_KEY_BYTES, "é" * (MAX_KEY_BYTES // 2)]
)
def test_plain_text_is_a_key_as_it_is(key: str) -> None:
    assert checked_key(key) == key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "non-empty string, got ''"),
        (None, "non-empty string, got None"),
        (b"key", "non-empty string, got a bytes"),
        pytest.param(10**5000, "non-empty string, got an int", id="endless number"),
        ("a\0", "are not printable"),
        ("a\nb", "are not printable"),
        ("\ud800", "are not printable"),
        ("a\u202eb", "are not printable"),
        ("x" * (MAX_KEY_BYTES + 1), "longer than 255 bytes; pass a hash of it"),
        ("é" * (MAX_KEY_BYTES // 2 + 1), "longer than 255 bytes"),
        pytest.param("\0" * 1_000_000, "are not printable", id="endless text"),
    ],
)
def test_what_a_store_could_not_keep_is_no_key(key: object, message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        checked_key(key)

    assert str(caught.value).isprintable()
    with pytest.raises(InvalidOption, match=rf"ctx\.once.*{message}"):
        checked_key(key, "key of ctx.once")
    assert len(str(caught.value)) < 300


def test_the_same_request_has_the_same_digest_however_its_keys_are_ordered() -> None:
    assert request_digest("a", b'{"x":1,"y":2}') == request_digest("a", b'{"y":2,"x":1}')


def test_a_different_type_or_payload_is_a_different_request() -> None:
    digests = {
        request_digest("a", b'{"x":1}'),
        request_digest("b", b'{"x":1}'),
        request_digest("a", b'{"x":2}'),
    }

    assert len(digests) == 3


@given(words, words, words, words)
def test_no_two_ways_of_cutting_a_text_have_the_same_external_key(a: str, b: str, c: str, d: str) -> None:
    assume((a, b) != (c, d))

    assert external_key(a, b) != external_key(c, d)


def test_an_external_key_is_the_same_at_every_attempt_and_different_for_each_call() -> None:
    assert external_key("t1", "charge") == external_key("t1", "charge")
    assert len({external_key("t1"), external_key("t1", "charge"), external_key("t2")}) == 3


def test_an_external_key_suits_the_header_of_any_api() -> None:
    key = external_key("t1", "ключ")

    assert len(key) == 40
    assert set(key) <= set("0123456789abcdef")
