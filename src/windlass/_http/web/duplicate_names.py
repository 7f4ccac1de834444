"""A name that is given twice in one object is refused: readers do not agree on which of the two counts.

msgspec takes the last, and does not tell. But each member of an object has one colon of its own: the colons
of an object, less those within its values, are as many as its names, unless one of them is there twice.
"""

import json
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.inspect import (
    AnyType,
    DictType,
    ListType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from .problems import Problem

_OPENS = (b"{", b"[")
_SHORT = 2_000  # bytes that are quicker read once more than looked through by their type
_members = msgspec.json.Decoder(dict[str, Raw])
_items = msgspec.json.Decoder(list[Raw])


def refuse_repeats(body: bytes, kind: Any) -> None:
    """Refuse a body, which is known to be of this type, if one of its objects gives a name twice.

    What in it is kept as it came (`Raw`) is for others to look into, and costs nothing here.
    """
    if len(body) > _SHORT or not _has_none(body):
        _check(body.lstrip(), _info(kind), "$")


def _has_none(body: bytes) -> bool:
    """Whether no name in it is given twice, anywhere. What cannot be read here is for others to refuse."""
    try:
        return not repeats(body, msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def repeats(data: bytes, value: Any) -> bool:
    """Whether the JSON that was read as this value gives a name twice in one object."""
    if b"\\u" in data:  # which may be a colon in disguise
        return _repeats_slowly(data)
    return data.count(b":") != msgspec.json.encode(value).count(b":")


def _check(data: bytes, kind: Type, place: str) -> None:
    if data[:1] not in _OPENS:
        return
    match kind:
        case StructType(cls=cls):
            members = _members.decode(data)
            values = {name: bytes(value) for name, value in members.items()}
            if data.count(b":") - sum(value.count(b":") for value in values.values()) != len(values):
                raise _twice(place)
            for name, inner in _inside(cls).items():
                if name in values:
                    _check(values[name], inner, f"{place}.{name}")
        case ListType(item_type=item) | VarTupleType(item_type=item):
            for number, one in enumerate(_items.decode(data)):
                _check(bytes(one), item, f"{place}[{number}]")
        case _:
            if repeats(data, msgspec.json.decode(data)):
                raise _twice(place)


_info = cache(type_info)


@cache
def _inside(struct: Any) -> dict[str, Type]:
    """The fields of an object that may hold objects in turn."""
    info = _info(struct)
    assert isinstance(info, StructType)
    found = {field.encode_name: _holder(field.type) for field in info.fields}
    return {name: kind for name, kind in found.items() if kind is not None}


def _holder(kind: Type) -> Type | None:
    """Of which type the objects are that a value may hold; None if it holds none."""
    match kind:
        case UnionType(types=types):
            some = [found for one in types if (found := _holder(one)) is not None]
            return some[0] if len(some) == 1 else AnyType() if some else None
        case ListType(item_type=item) | VarTupleType(item_type=item):
            return kind if _holder(item) is not None else None
        case StructType() | DictType() | TupleType() | AnyType():
            return kind
        case _:
            return None


def _repeats_slowly(data: bytes) -> bool:
    found = False

    def looked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        made = dict(pairs)
        found = found or len(made) < len(pairs)
        return made

    json.loads(data, object_pairs_hook=looked)
    return found


def _twice(place: str) -> Problem:
    return Problem(422, "invalid-request", f"an object gives one name twice; say each once - at `{place}`")
