"""Payloads that arrive as JSON text are checked as strictly as values."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.input.payload import MAX_BYTES, MAX_DEPTH, parse, parse_payload
from windlass.errors import InvalidPayload


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("{'a': 1}", "is not JSON"),
        ('{"a": 1} x', "is not JSON: Extra data"),
        ('{"a": 1}{"b": 2}', "is not JSON: Extra data"),
        ('{"a": 01}', "is not JSON"),
        ('{"a": "\n"}', "is not JSON: Invalid control character"),
        ('\ufeff{"a": 1}', "is not JSON"),
        (b'\xef\xbb\xbf{"a": 1}', "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8"),
        ('{"a": NaN}', "contains NaN, which is not JSON; pass null"),
        ('{"a": Infinity}', "contains Infinity, which is not JSON"),
        ('{"a": -Infinity}', "contains -Infinity, which is not JSON"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "has the key 'b' twice in one object; pass it once"),
        (r'{"a": 1, "\u0061": 2}', "has the key 'a' twice"),
        ('{"a": ' + "9" * 5000 + "}", "an integer of thousands of digits; pass it as a string"),
        ("[1]", "must be a mapping of parameters, got a list"),
        ("null", "must be a mapping of parameters, got a NoneType"),
        ('"a"', "must be a mapping of parameters, got a str"),
        ("1", "must be a mapping of parameters, got an int"),
        ("[" * 100_000, "nested deeper than 64 levels; flatten it"),
        ('{"a":' * 100_000, "nested deeper than 64 levels"),
        ("]" * 100_000 + "[" * 100_000, "is not JSON|nested deeper"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_what_is_no_payload_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidPayload, match=message) as caught:
        parse_payload(text)

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "pointer", "message"),
    [
        (r'{"a": ["\u0000"]}', "/a/0", "NUL"),
        (r'{"a\u0000": 1}', r"/a\x00", "NUL"),
        (r'{"a": "\ud800"}', "/a", "lone surrogate"),
        (r'{"\udc00": 1}', r"/\udc00", "lone surrogate"),
        ('{"a": {"b": 1e400}}', "/a/b", "is infinite"),
        ('{"a": -1e400}', "/a", "is infinite"),
        ('{"a": 9223372036854775808}', "/a", "more than 64 bits"),
        ('{"a": -9223372036854775809}', "/a", "more than 64 bits"),
        ('{"a": ' + "9" * 4000 + "}", "/a", "more than 64 bits"),
    ],
)
def test_a_bad_value_in_a_document_is_refused_with_its_place(text: str, pointer: str, message: str) -> None:
    with pytest.raises(InvalidPayload, match=message) as caught:
        parse_payload(text)

    assert caught.value.pointer == pointer
    assert str(caught.value).encode()


def test_a_long_name_given_twice_makes_a_short_message() -> None:
    name = "k" * 100_000

    with pytest.raises(InvalidPayload, match="twice") as caught:
        parse_payload(f'{{"{name}": 1, "{name}": 2}}')

    assert len(str(caught.value)) < 200


def test_looking_for_a_name_given_twice_is_quick_in_a_large_object() -> None:
    members = ",".join(f'"{number}":1' for number in range(80_000))
    started = time.process_time()

    with pytest.raises(InvalidPayload, match="'79999' twice"):
        parse_payload(f'{{{members},"79999":2}}')

    assert time.process_time() - started < 5  # comparing each with each takes minutes


def test_nesting_is_bounded_exactly() -> None:
    fits = '{"a":' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}"

    assert parse_payload(fits) == fits.encode()
    with pytest.raises(InvalidPayload, match="nested deeper"):
        parse_payload(fits.replace("[]", "[[]]"))


def test_brackets_in_text_do_not_nest() -> None:
    text = json.dumps({"a": "[" * 1000 + '"' + "{" * 1000 + "\\", "b": ["]"]})

    assert json.loads(parse_payload(text)) == json.loads(text)


def test_many_objects_side_by_side_do_not_nest() -> None:
    text = json.dumps({"a": [{"b": []}] * 1000})

    assert json.loads(parse_payload(text)) == json.loads(text)


def test_the_size_is_bounded_exactly() -> None:
    fits = '{"a":"' + "x" * (MAX_BYTES - 8) + '"}'

    assert len(parse_payload(fits)) == MAX_BYTES
    with pytest.raises(InvalidPayload, match="1,048,577 bytes of JSON, more than the limit of 1,048,576"):
        parse_payload(fits + " ")


def test_a_document_whose_characters_fit_but_not_its_bytes_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="more than the limit of 9"):
        parse_payload('{"a":"é"}', max_bytes=9)


def test_text_and_bytes_are_the_same_document_spelled_our_way() -> None:
    text = '\n{ "b" : [1.50, 1E2, "\\u00e9", true, null], "a" : -0 } '

    assert (
        parse_payload(text)
        == parse_payload(text.encode())
        == '{"b":[1.5,100.0,"é",true,null],"a":0}'.encode()
    )


members = st.dictionaries(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.none(),
)


@given(members, st.booleans())
def test_a_good_document_comes_through_however_it_is_spelled(value: dict[str, Any], ascii_only: bool) -> None:
    assert json.loads(parse_payload(json.dumps(value, ensure_ascii=ascii_only, indent=1))) == value


@given(st.text('{}[]",:\\0123456789eE+-.truefalsn \n\0\ud800', max_size=30) | st.binary(max_size=30))
def test_no_text_does_worse_than_being_refused(text: str | bytes) -> None:
    refused = ""
    try:
        assert isinstance(json.loads(parse_payload(text)), dict)
    except InvalidPayload as error:
        refused = str(error)

    assert refused.isprintable()


_PIECES = ("{", "}", "[", "]", ",", ":", '"a"', '"b"', '"é"', r'"\u0000"', "1", "1.0", "9" * 30, "null", " ")
_broken = st.lists(st.sampled_from(_PIECES)).map("".join)
_whole = st.dictionaries(st.text(), st.integers() | st.floats() | st.text()).map(json.dumps)


@given(_broken | _whole)
def test_the_quick_look_at_bytes_finds_what_the_slow_one_does(text: str) -> None:
    def found(document: str | bytes) -> bytes | str:
        try:
            return parse_payload(document)
        except InvalidPayload as error:
            return str(error)

    assert found(text.encode()) == found(text)
    assert found("".join(text.split()).encode()) == found("".join(text.split()))


def test_the_quick_look_keeps_to_the_bound() -> None:
    with pytest.raises(InvalidPayload, match="more than the limit of 5"):
        parse_payload(b'{"a":1}', max_bytes=5)


def test_any_json_can_be_a_result() -> None:
    assert parse(b' [1, "a"] ', "result") == b'[1,"a"]'
    with pytest.raises(InvalidPayload, match="the result is not JSON"):
        parse(b"[1", "result")
