"""What may be a payload or a result: JSON that every store keeps byte for byte. (P13)

Values are checked once, here, and are opaque bytes from then on. Every refusal names the place.
"""

import json
import math
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from ...errors import InvalidPayload
from .quoting import kind_of, printable, quoted, shorten

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
_MAX_POINTER = 500
_SHORT = 10_000
_MINUTE = timedelta(minutes=1)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="deterministic")

_Place: TypeAlias = tuple[str | int, ...]


def encode_payload(value: object, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The JSON of a payload: an object whose keys are the handler's parameters."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise InvalidPayload(f"a payload is an object of named values, not {kind_of(value)}")
    return encode(value, "payload", max_bytes=max_bytes)


def encode(value: object, what: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The JSON of any value; `what` names it in errors."""
    data = _encoder.encode(_Reader(what, max_bytes).read(value))
    if len(data) > max_bytes:
        raise _too_large(what, f"{len(data):,}", max_bytes)
    return data


def parse_payload(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Check a payload that came from outside as JSON, and spell it our way."""
    if len(text) <= min(_SHORT, max_bytes) and isinstance(text, bytes) and _is_spelt_our_way(text):
        return text
    return encode_payload(_parsed(text, "payload", max_bytes), max_bytes=max_bytes)


def _is_spelt_our_way(text: bytes) -> bool:
    """Whether it is a payload as we would write it, to the byte: then there is nothing to find in it.

    What most programs send is. The parser that tells what is wrong takes four times as long.
    """
    try:
        value = msgspec.json.decode(text)
        return isinstance(value, dict) and encode_payload(value) == text
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidPayload, RecursionError):
        return False


def parse(text: str | bytes, what: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Likewise any JSON; `what` names it in errors."""
    return encode(_parsed(text, what, max_bytes), what, max_bytes=max_bytes)


def _parsed(text: str | bytes, what: str, max_bytes: int) -> Any:
    if len(text) > max_bytes:
        raise _too_large(what, f"{len(text):,}", max_bytes)
    try:
        document = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the {what} is not UTF-8: {error}; encode it so") from None
    # The parser recurses; a deep document must be refused before it gets there.
    if _depth(document) > MAX_DEPTH:
        raise InvalidPayload(f"the {what} is nested deeper than {MAX_DEPTH} levels; flatten it")
    try:
        return json.loads(document, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidPayload(f"the {what} is not JSON: {error}") from None
    except ValueError:  # digits beyond what int() converts
        raise InvalidPayload(
            f"the {what} holds an integer of thousands of digits; pass it as a string"
        ) from None


def decode(data: bytes) -> Any:
    """The value of bytes that `encode` made."""
    return msgspec.json.decode(data)


def canonical(data: bytes) -> bytes:
    """The same JSON with its keys sorted, so that equal values have equal bytes."""
    return _sorted_encoder.encode(msgspec.json.decode(data))


class _Reader:
    """Reads one value down to plain JSON types, and gives up as soon as it cannot be acceptable."""

    def __init__(self, what: str, max_bytes: int) -> None:
        self._what = what
        self._max_bytes = max_bytes
        self._least = 0  # the JSON cannot be shorter than this many bytes

    def read(self, value: object) -> Any:
        """The whole value; nearly always a dict."""
        return self._members(value, (), MAX_DEPTH) if type(value) is dict else self.plain(value)

    def plain(self, value: object, path: _Place = (), depth: int = MAX_DEPTH) -> Any:
        match value:
            case Enum():
                return self.plain(value.value, path, depth)
            case None | bool():
                return value
            case str():
                return self._text(value, path)
            case int():
                if not _INT_MIN <= value <= _INT_MAX:
                    raise self._refuse(path, "is an integer beyond 64 bits; pass it as a string")
                return int.__index__(value)
            case float():
                if not math.isfinite(value):
                    raise self._refuse(path, f"is {value}, which JSON cannot say; pass null or a string")
                return float.__float__(value)
            case Mapping():
                return self._members(value, path, depth)
            case list() | tuple():
                self._descend(path, depth, len(value))
                return [self.plain(item, (*path, index), depth - 1) for index, item in enumerate(value)]
            case datetime() | time():
                return self._moment(value, path)
            case _:
                return self.plain(self._builtin(value, path, depth), path, depth)

    def _members(self, value: Mapping[Any, object], path: _Place, depth: int) -> dict[str, Any]:
        self._descend(path, depth, len(value))
        made: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise self._refuse(path, f"has {kind_of(key)} as a key; make it a string")
            below = (*path, key)
            name = self._text(key, below)
            if name in made:
                raise self._refuse(below, "is given twice; say it once")
            made[name] = self._member(item, below, depth - 1)
        return made

    def _member(self, item: object, path: _Place, depth: int) -> Any:
        """What payloads are mostly made of, without asking what else it might be."""
        if type(item) is str:
            return self._text(item, path)
        if type(item) is int and _INT_MIN <= item <= _INT_MAX:
            return item
        return self.plain(item, path, depth)

    def _text(self, value: str, path: _Place) -> str:
        if "\0" in value:
            raise self._refuse(path, "holds a NUL character, which some stores cannot keep; remove it")
        if not value.isascii() and not _is_utf8(value):
            raise self._refuse(path, "holds a lone surrogate, which is not text; decode it properly first")
        self._count(len(value))
        return str.__str__(value)

    def _moment(self, value: datetime | time, path: _Place) -> str:
        offset = value.utcoffset()
        if offset is None:
            kind = "datetime" if isinstance(value, datetime) else "time"
            raise self._refuse(path, f"is a naive {kind}, whose instant nobody can know; give it a time zone")
        if offset % _MINUTE:
            raise self._refuse(path, "is an odd number of seconds from UTC; convert it to UTC first")
        return value.isoformat().replace("+00:00", "Z")

    def _builtin(self, value: object, path: _Place, depth: int) -> object:
        """What msgspec makes of a date, UUID, Decimal, set, dataclass, Struct or bytes."""

        def unknown(inner: object) -> Any:
            if inner is not value:
                return self.plain(inner, path, depth)
            raise self._refuse(
                path, f"holds {kind_of(value)}, which has no form in JSON; pass plain values or an id"
            )

        try:
            # A datetime inside must come through as it is, to be looked at in turn.
            return msgspec.to_builtins(
                value, builtin_types=(datetime, time), order="deterministic", enc_hook=unknown
            )
        except RecursionError:
            raise self._too_deep(path) from None
        except TypeError as error:  # a set that cannot be sorted, a strange key
            why = f"which has no form in JSON: {shorten(str(error), 200)}; pass plain values"
            raise self._refuse(path, f"holds {kind_of(value)}, {why}") from None

    def _descend(self, path: _Place, depth: int, members: int) -> None:
        if depth == 0:
            raise self._too_deep(path)
        self._count(members)

    def _count(self, at_least: int) -> None:
        self._least += at_least
        if self._least > self._max_bytes:
            raise _too_large(self._what, f"at least {self._least:,}", self._max_bytes)

    def _too_deep(self, path: _Place) -> InvalidPayload:
        return self._refuse(path, f"is nested deeper than {MAX_DEPTH} levels, or holds itself; flatten it")

    def _refuse(self, path: _Place, problem: str) -> InvalidPayload:
        pointer = "".join("/" + printable(str(part)).replace("~", "~0").replace("/", "~1") for part in path)
        pointer = shorten(pointer, _MAX_POINTER)
        return InvalidPayload(f"the {self._what} at {pointer or 'its top'} {problem}", pointer=pointer)


def _too_large(what: str, size: str, max_bytes: int) -> InvalidPayload:
    return InvalidPayload(
        f"the {what} is {size} bytes of JSON, more than the {max_bytes:,} allowed; "
        f"keep large data elsewhere and pass a reference to it"
    )


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _depth(document: str) -> int:
    """How deep the brackets go, strings left out, or a bound on it. Linear, and never recurses."""
    opened = document.count("[") + document.count("{")
    if opened <= MAX_DEPTH:  # as with nearly all of them: each character costs
        return opened
    depth = deepest = 0
    in_string = escaped = False
    for char in document:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise InvalidPayload(f"the payload gives {quoted(name)} twice in one object; say it once")
        made[name] = value
    return made


def _no_constant(name: str) -> Any:
    raise InvalidPayload(f"the payload holds {name}, which is not JSON; pass null or a string")
