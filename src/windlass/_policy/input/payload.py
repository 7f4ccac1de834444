"""Encode and validate payloads and results: JSON that every store keeps byte for byte.

Values are checked once, here, and are opaque bytes from then on. Errors give the JSON Pointer of the value.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from ...errors import InvalidPayload
from .quote import kind_of, printable, quoted, shorten

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
_MAX_POINTER = 500
_SHORT = 10_000  # bytes
CHECKED = (datetime, time, Decimal)
"""What is checked value by value, so that other conversions leave it as it is."""

_MINUTE = timedelta(minutes=1)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="deterministic")

_Path: TypeAlias = tuple[Any, ...]
"""Where a value is: the path of what it is in, and its name or index there; () at the root."""


def encode_payload(value: object, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode a payload: an object whose keys are the handler's parameters."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise InvalidPayload(f"the payload must be a mapping of parameters, got {kind_of(value)}")
    return encode(value, "payload", max_bytes=max_bytes)


def encode(value: object, what: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode any value; `what` names it in errors."""
    data = _encoder.encode(_Converter(what, max_bytes).convert(value))
    if len(data) > max_bytes:
        raise _too_large(what, f"{len(data):,}", max_bytes)
    return data


def check_value(value: object, path: Iterable[str | int]) -> None:
    """Raise InvalidPayload unless this value may be in a payload, to which `path` leads."""
    where: _Path = ()
    for part in path:
        where = (where, part)
    _Converter("payload", MAX_BYTES).plain(value, where)


def parse_payload(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Validate a payload that arrived as JSON, and return it in our encoding."""
    if len(text) <= min(_SHORT, max_bytes) and isinstance(text, bytes) and _is_our_encoding(text):
        return text
    return encode_payload(_parsed(text, "payload", max_bytes), max_bytes=max_bytes)


def _is_our_encoding(text: bytes) -> bool:
    """Whether this is to the byte how we encode a payload, so valid: four times as fast as to parse it."""
    try:
        value = msgspec.json.decode(text)
        return isinstance(value, dict) and encode_payload(value) == text
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidPayload, RecursionError):
        return False


def parse(text: str | bytes, what: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Validate any JSON text, likewise; `what` names it in errors."""
    return encode(_parsed(text, what, max_bytes), what, max_bytes=max_bytes)


def _parsed(text: str | bytes, what: str, max_bytes: int) -> Any:
    if len(text) > max_bytes:
        raise _too_large(what, f"{len(text):,}", max_bytes)
    try:
        document = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the {what} is not UTF-8: {error}") from None
    # The parser recurses, so the depth is checked before it runs.
    if _depth(document) > MAX_DEPTH:
        raise InvalidPayload(f"the {what} is nested deeper than {MAX_DEPTH} levels; flatten it")
    try:
        return json.loads(document, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidPayload(f"the {what} is not JSON: {error}") from None
    except ValueError:  # more digits than int() converts
        raise InvalidPayload(
            f"the {what} contains an integer of thousands of digits; pass it as a string"
        ) from None


def decode(data: bytes) -> Any:
    """Decode what `encode` returned."""
    return msgspec.json.decode(data)


def canonical(data: bytes) -> bytes:
    """Sort the keys of JSON, so that equal values have equal bytes."""
    return _sorted_encoder.encode(msgspec.json.decode(data))


class _Converter:
    """Converts a value to plain JSON types, and raises InvalidPayload as soon as it cannot be valid."""

    def __init__(self, what: str, max_bytes: int) -> None:
        self._what = what
        self._max_bytes = max_bytes
        self._least = 0  # lower bound of the size in bytes

    def convert(self, value: object) -> Any:
        """Convert the whole value; nearly always a dict."""
        return self._members(value, (), MAX_DEPTH) if type(value) is dict else self.plain(value)

    def plain(self, value: object, path: _Path = (), depth: int = MAX_DEPTH) -> Any:
        match value:
            case Enum():
                return self.plain(value.value, path, depth)
            case None | bool():
                return value
            case str():
                return self._text(value, path)
            case int():
                if not _INT_MIN <= value <= _INT_MAX:
                    raise self._invalid(path, "is an integer of more than 64 bits; pass it as a string")
                return int.__index__(value)
            case float():
                if not math.isfinite(value):
                    raise self._not_finite(value, path)
                return float.__float__(value)
            case Mapping():
                return self._members(value, path, depth)
            case list() | tuple():
                self._descend(path, depth, len(value))
                return [self.plain(item, (path, index), depth - 1) for index, item in enumerate(value)]
            case datetime() | time():
                return self._moment(value, path)
            case _:
                return self.plain(self._builtin(value, path, depth), path, depth)

    def _members(self, value: Mapping[Any, object], path: _Path, depth: int) -> dict[str, Any]:
        self._descend(path, depth, len(value))
        made: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise self._invalid(path, f"has {kind_of(key)} as a key; keys must be strings")
            below = (path, key)
            name = self._text(key, below)
            if name in made:
                raise self._invalid(below, "occurs twice; pass it once")
            made[name] = self._member(item, below, depth - 1)
        return made

    def _member(self, item: object, path: _Path, depth: int) -> Any:
        """Fast path for what payloads mostly consist of: plain strings and integers."""
        if type(item) is str:
            return self._text(item, path)
        if type(item) is int and _INT_MIN <= item <= _INT_MAX:
            return item
        return self.plain(item, path, depth)

    def _text(self, value: str, path: _Path) -> str:
        if "\0" in value:
            raise self._invalid(path, "contains a NUL character, which some stores cannot store; remove it")
        if not value.isascii() and not _is_utf8(value):
            raise self._invalid(path, "contains a lone surrogate, which is not valid Unicode text")
        self._count(len(value))
        return str.__str__(value)

    def _moment(self, value: datetime | time, path: _Path) -> str:
        offset = value.utcoffset()
        if offset is None and isinstance(value, datetime):
            raise self._invalid(path, "is a datetime without a time zone; pass an aware datetime")
        if offset is not None and offset % _MINUTE:
            raise self._invalid(path, "has a UTC offset that is not in whole minutes; convert it to UTC")
        return value.isoformat().replace("+00:00", "Z")

    def _builtin(self, value: object, path: _Path, depth: int) -> object:
        """Convert a date, UUID, Decimal, set, dataclass, Struct or bytes, mostly with msgspec."""
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise self._not_finite(value, path)
            return str(value)

        def unknown(inner: object) -> Any:
            if inner is not value:
                return self.plain(inner, path, depth)
            raise self._invalid(
                path, f"is {kind_of(value)}, which JSON cannot represent; pass plain values or an id"
            )

        try:
            return msgspec.to_builtins(value, builtin_types=CHECKED, order="deterministic", enc_hook=unknown)
        except RecursionError:
            raise self._too_deep(path) from None
        except TypeError as error:  # a set that cannot be sorted, an unsupported key
            if "not supported between" in str(error):
                why = "with members that cannot be sorted; pass a list instead of a set"
                raise self._invalid(path, f"is {kind_of(value)} {why}") from None
            why = f"which JSON cannot represent: {shorten(str(error), 200)}; pass plain values"
            raise self._invalid(path, f"is {kind_of(value)}, {why}") from None

    def _not_finite(self, value: float | Decimal, path: _Path) -> InvalidPayload:
        name = "NaN" if "nan" in str(value).lower() else "infinite"
        return self._invalid(path, f"is {name}, which JSON cannot represent; pass null or a string")

    def _descend(self, path: _Path, depth: int, members: int) -> None:
        if depth == 0:
            raise self._too_deep(path)
        self._count(members)

    def _count(self, at_least: int) -> None:
        self._least += at_least
        if self._least > self._max_bytes:
            raise _too_large(self._what, f"at least {self._least:,}", self._max_bytes)

    def _too_deep(self, path: _Path) -> InvalidPayload:
        return self._invalid(
            path, f"is nested deeper than {MAX_DEPTH} levels, or contains itself; flatten it"
        )

    def _invalid(self, path: _Path, problem: str) -> InvalidPayload:
        parts: list[str] = []
        while path:
            path, part = path
            parts.append("/" + printable(str(part)).replace("~", "~0").replace("/", "~1"))
        pointer = "".join(reversed(parts))
        pointer = shorten(pointer, _MAX_POINTER)
        return InvalidPayload(f"the {self._what} at {pointer or 'its root'} {problem}", pointer=pointer)


def _too_large(what: str, size: str, max_bytes: int) -> InvalidPayload:
    return InvalidPayload(
        f"the {what} is {size} bytes of JSON, more than the limit of {max_bytes:,}; "
        f"store large data elsewhere and pass a reference to it"
    )


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _depth(document: str) -> int:
    """Return how deep brackets outside strings nest, or an upper bound of it. Linear, without recursion."""
    opened = document.count("[") + document.count("{")
    if opened <= MAX_DEPTH:  # Nearly always; the loop below is slow.
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
            raise InvalidPayload(f"the payload has the key {quoted(name)} twice in one object; pass it once")
        made[name] = value
    return made


def _no_constant(name: str) -> Any:
    raise InvalidPayload(f"the payload contains {name}, which is not JSON; pass null or a string")
