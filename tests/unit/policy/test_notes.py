"""Notes of an attempt: what is accepted, and that no secret is stored."""

import pytest

from windlass._policy.input.notes import MAX_NOTES_BYTES, encode_notes, merged_notes, parse_notes
from windlass._policy.secrets.mask import Mask
from windlass.errors import InvalidOption, InvalidPayload


def test_facts_are_added_to_those_noted_before() -> None:
    assert merged_notes({"a": 1, "b": 1}, {"b": 2, "c": (3,)}) == {"a": 1, "b": 2, "c": [3]}


def test_notes_are_an_object_of_bounded_size() -> None:
    assert parse_notes(b'{"code":503}') == {"code": 503}
    with pytest.raises(InvalidPayload):
        parse_notes(b"[1]")
    with pytest.raises(InvalidOption, match="bytes of JSON"):
        merged_notes({}, {"text": "x" * MAX_NOTES_BYTES})


def test_secrets_are_masked_by_name_and_by_value() -> None:
    notes = {"iban": "DE1", "url": "/?p=sesame", "list": ["sesame"], "code": 200}

    encoded = encode_notes(notes, Mask(("iban",), ("sesame",)))

    assert encoded == b'{"iban":"[secret]","url":"/?p=[secret]","list":["[secret]"],"code":200}'
    assert encode_notes({}, Mask()) is None
