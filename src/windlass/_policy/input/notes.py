"""Notes: small facts that a handler keeps with its attempt, such as the response code of a request."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import InvalidOption
from ..secrets.mask import Mask
from .payload import decode, encode, parse_payload

MAX_NOTES_BYTES = 4_096


def merged_notes(notes: Mapping[str, Any], facts: Mapping[str, object]) -> dict[str, Any]:
    """Add facts to those noted so far, as plain JSON values. Raises InvalidPayload for what JSON cannot hold.

    Raises InvalidOption if they take more than `MAX_NOTES_BYTES` of JSON together.
    """
    added = encode(dict(facts), "note")
    merged = {**notes, **decode(added)}
    _check_size(msgspec.json.encode(merged) if notes else added)
    return merged


def parse_notes(text: bytes) -> dict[str, Any]:
    """Parse the notes that a worker sends as JSON. Raises InvalidPayload or InvalidOption."""
    _check_size(text)
    parsed: dict[str, Any] = decode(parse_payload(text))
    return parsed


def encode_notes(notes: Mapping[str, Any], mask: Mask) -> bytes | None:
    """Encode notes for the store, without the secrets of their task; None if there are none."""
    return msgspec.json.encode(mask.json(notes)) if notes else None


def _check_size(data: bytes) -> None:
    if len(data) > MAX_NOTES_BYTES:
        raise InvalidOption(
            f"the notes of an attempt take {len(data):,} bytes of JSON, at most {MAX_NOTES_BYTES:,}; "
            f"return larger facts as the result"
        )
