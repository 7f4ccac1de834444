"""The values of the seam as JSON, for the HTTP store and its server.

Field names are those of the model. Payloads and results are embedded as they are, byte for byte. Instants
are ISO 8601 with a zone. Durations are seconds, as floats: exact to the microsecond up to 272 years. Integers
have 64 bits.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct

T = TypeVar("T")

_PLAIN: dict[Any, Any] = {
    bytes: Raw,
    timedelta: float,
    datetime: Annotated[datetime, Meta(tz=True)],
    int: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)],  # as in every store
}
_UNIONS = (Union, UnionType)


@cache
def wire_type(kind: Any) -> Any:
    """Return the type to decode JSON as, for a type of the model."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in _UNIONS:
        if bytes in arguments:  # None is left out: null is a payload like any other
            return Raw
        return Union[tuple(wire_type(one) for one in arguments)]  # noqa: UP007  made at run time
    if isinstance(origin, type) and issubclass(origin, Struct):
        return _wire_struct(origin, _filled(origin, arguments), arguments)
    if arguments:
        return origin[tuple(one if one is Ellipsis else wire_type(one) for one in arguments)]
    return kind


def _filled(struct: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the types of a struct's fields, with the type variables of a generic one replaced."""
    known = dict(zip(getattr(struct, "__parameters__", ()), arguments, strict=True))

    def fill(kind: Any) -> Any:
        if kind in known:
            return known[kind]
        origin = get_origin(kind)
        return origin[tuple(map(fill, get_args(kind)))] if origin is tuple else kind

    return {name: fill(kind) for name, kind in get_type_hints(struct).items()}


def _wire_struct(kind: Any, hints: dict[str, Any], arguments: tuple[Any, ...]) -> Any:
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        declared = wire_type(hints[field.name])
        if field.required:
            fields.append((field.name, declared))
        elif declared is Raw:
            fields.append((field.name, declared, Raw(field.default or b"")))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, declared, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, declared, _default(field.default, declared)))
    tag = kind.__struct_config__.tag
    return msgspec.defstruct(
        kind.__name__ + "".join(f"Of{one.__name__}" for one in arguments),
        fields,
        kw_only=True,
        forbid_unknown_fields=True,
        tag=tag,
        tag_field="kind" if tag is not None else None,
        namespace={"__doc__": kind.__doc__, "__model__": kind},
    )


def _default(value: Any, declared: Any) -> Any:
    if isinstance(value, Struct):
        return msgspec.field(default_factory=lambda: msgspec.convert(to_wire(value), declared))
    return tuple(value) if isinstance(value, tuple) else to_wire(value)


def to_wire(value: Any, embed: Callable[[bytes], Raw] = Raw) -> Any:
    """Convert a value of the model to one that msgspec encodes as its JSON; `embed` makes it of payloads."""
    match value:
        case bytes():
            return embed(value)
        case timedelta():
            return value / timedelta(seconds=1)
        case Struct():
            return _fields_to_wire(value, embed)
        case tuple() | list():
            return [to_wire(one, embed) for one in value]
        case dict():
            return {key: to_wire(one, embed) for key, one in value.items()}
        case _:
            return value


def _fields_to_wire(value: Struct, embed: Callable[[bytes], Raw]) -> dict[str, Any]:
    optional = _optional_fields(type(value))
    fields = {
        name: to_wire(one, embed)
        for name in value.__struct_fields__
        if (one := getattr(value, name)) is not None or name not in optional
    }
    tag = value.__struct_config__.tag
    return fields if tag is None else {"kind": tag, **fields}


@cache
def _optional_fields(kind: Any) -> frozenset[str]:
    """Return the fields that are None by default, and left out then."""
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.default is None)


def encode(value: Any) -> bytes:
    """Encode a value of the model as JSON."""
    return _encoder.encode(to_wire(value))


def encode_stored(value: Any) -> bytes:
    """Encode a value from a store, whose payloads may not be JSON: such a one becomes null.

    One damaged task must not make the others of a response unreadable.
    """
    data = encode(value)
    return data if _is_json(data) else _encoder.encode(to_wire(value, _embed_json))


def _embed_json(data: bytes) -> Raw:
    return Raw(data if _is_json(data) else b"null")


def _is_json(data: bytes) -> bool:
    try:
        if not data.isascii():
            data.decode()  # msgspec does not check the encoding of what it skips
        _skip.decode(data)
    except (ValueError, RecursionError):
        return False
    return True


class Decoder(Generic[T]):
    """Decodes JSON as one type of the model. Raises msgspec.DecodeError, or what the model raises."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(wire_type(kind))
        self._read = _reader(kind)

    def decode(self, data: bytes) -> T:
        try:
            data.decode()  # msgspec does not check the encoding of Raw values
            value: T = self._read(self._decoder.decode(data))
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"not valid UTF-8 at byte {error.start}") from None
        except RecursionError:
            raise msgspec.DecodeError("JSON is nested too deeply") from None
        return value


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return a function that makes a value of the model from a decoded one."""
    plain: dict[Any, Callable[[Any], Any]] = {bytes: bytes, timedelta: _duration, datetime: _instant}
    if kind in plain:
        return plain[kind]
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in _UNIONS:
        return _union_reader(arguments)
    if isinstance(origin, type) and issubclass(origin, Struct):
        hints = _filled(origin, arguments)
        readers = {name: _reader(hints[name]) for name in origin.__struct_fields__}
        return lambda value: origin(**{name: read(getattr(value, name)) for name, read in readers.items()})
    if origin in (tuple, list, Sequence) and arguments:
        one = _reader(arguments[0])
        return lambda values: tuple([one(value) for value in values])
    if origin is dict and arguments:
        of_value = _reader(arguments[1])
        return lambda values: {key: of_value(value) for key, value in values.items()}
    return lambda value: value


def _duration(seconds: float) -> timedelta:
    """Return a duration, limited to what `timedelta` can represent."""
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        return timedelta.max if seconds > 0 else timedelta.min


def _instant(value: datetime) -> datetime:
    """Return the same instant in UTC, as stores compare them."""
    try:
        return value if value.tzinfo is UTC else value.astimezone(UTC)
    except OverflowError:
        raise msgspec.ValidationError(
            f"{value.isoformat()} is not within the years 1 to 9999 in UTC"
        ) from None


def _union_reader(kinds: Sequence[Any]) -> Callable[[Any], Any]:
    structs = {one: _reader(one) for one in kinds if isinstance(one, type) and issubclass(one, Struct)}
    others = [_reader(one) for one in kinds if one is not NoneType and one not in structs]

    def read(value: Any) -> Any:
        if value is None or (isinstance(value, Raw) and not bytes(value)):
            return None
        model = getattr(type(value), "__model__", None)
        if model in structs:
            return structs[model](value)
        return others[0](value) if others else value

    return read


_encoder = msgspec.json.Encoder()
_skip = msgspec.json.Decoder(Raw)
