"""A mask: what to mask in the texts and documents of one task."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from ..._model.brief import Brief
from .fields import MASK, WHOLE, is_secret_path
from .values import (
    MIN_SCRUBBED,
    longest_first,
    names_and_patterns,
    scrub,
    scrub_json,
    searchable,
    secret_values,
    texts_in,
)


class Mask(Brief, Struct, frozen=True):
    """What to mask in texts and documents of a task: secret fields by name, and their values anywhere."""

    secret: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # longest first

    def text(self, text: str) -> str:
        """Return the text without secret values."""
        return scrub(text, self.values)

    def json(self, value: Any) -> Any:
        """Return a JSON value without secret fields, and without their values in other texts and in keys."""
        return scrub_json(redact(value, self.secret), self.values)

    def encoded(self, data: bytes) -> bytes:
        """Do the same for encoded JSON; what is not JSON is masked as a whole."""
        try:
            return msgspec.json.encode(self.json(msgspec.json.decode(data)))
        except (ValueError, RecursionError):  # not JSON
            return msgspec.json.encode(MASK)

    def result(self, data: bytes) -> bytes:
        """Do the same for an encoded result, all of which may be secret."""
        return msgspec.json.encode(MASK) if WHOLE in self.secret else self.encoded(data)


def mask_of(payload: bytes, secret: tuple[str, ...], *others: Iterable[str]) -> Mask:
    """Return the mask of a task with this payload; `others` are further secret values.

    A payload that is not JSON is masked as a whole: what is secret in it cannot be found.
    """
    try:
        values = secret_values(msgspec.json.decode(payload), secret)
    except (ValueError, RecursionError):  # not JSON
        text = payload.decode("utf-8", "replace")
        values = (text,) if len(text) >= MIN_SCRUBBED else ()
    return Mask(secret, longest_first(values, *others) if others else values)


def redact(value: Any, secret: Iterable[str] = ()) -> Any:
    """Mask the secrets of a JSON value.

    `secret` are the declared fields, as names or dotted paths, and the patterns of `checked_patterns`.
    """
    names, patterns = names_and_patterns(tuple(secret))
    if patterns and searchable(patterns, sum(map(len, texts_in(value)))) is None:
        return MASK
    return _redact(value, names, patterns, ())


def _redact(value: Any, secret: frozenset[str], patterns: tuple[str, ...], path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            scrub(key, patterns) if patterns else key: MASK
            if is_secret_path((*path, key), secret)
            else _redact(item, secret, patterns, (*path, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_redact(item, secret, patterns, path) for item in value]
    return _without_patterns(value, patterns) if patterns else value


def _without_patterns(value: Any, patterns: tuple[str, ...]) -> Any:
    """Mask matches in a text; a number in which there is one is masked whole."""
    if isinstance(value, str):
        return scrub(value, patterns)
    if isinstance(value, bool) or value is None:
        return value
    return value if scrub(str(value), patterns) == str(value) else MASK
