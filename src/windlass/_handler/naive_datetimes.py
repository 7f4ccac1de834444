"""Find datetimes without a time zone in decoded payloads: the text of one decodes as well as the others'."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from .._policy.input.payload import check_value

_Path: TypeAlias = tuple[str | int, ...]


def may_be_naive(parts: Iterable[inspect.Type]) -> bool:
    """Whether a type made of these takes datetimes with and without a time zone.

    One that somewhere declares a naive datetime, by `Meta(tz=False)`, takes them everywhere.
    """
    zones = [part.tz for part in parts if isinstance(part, inspect.DateTimeType)]
    return None in zones and False not in zones


def refuse_naive(value: object, plain: object, path: _Path) -> None:
    """Raise InvalidPayload for a naive datetime in a value that was decoded from these JSON values.

    Defaults of its classes, which are not in the JSON, are their author's affair.
    """
    if isinstance(value, datetime):
        check_value(value, path)
        return
    for part, below, name in _members(value, plain):
        refuse_naive(part, below, (*path, name))


def _members(value: object, plain: object) -> Iterator[tuple[object, object, str | int]]:
    """Iterate over the parts of a value, each with its JSON and its name there."""
    if isinstance(value, Mapping) and isinstance(plain, dict):
        for (key, one), (name, below) in zip(value.items(), plain.items(), strict=False):
            yield key, name, name
            yield one, below, name
    elif isinstance(value, AbstractSet) and isinstance(plain, list):  # its order is not that of the JSON
        below = plain[0] if plain else None
        yield from ((one, below, index) for index, one in enumerate(value))
    elif isinstance(value, Sequence) and isinstance(plain, list):
        yield from zip(value, plain, range(len(plain)), strict=False)
    elif isinstance(plain, dict):
        for attribute, name in _fields(type(value)):
            if name in plain:
                yield getattr(value, attribute), plain[name], name
    elif isinstance(value, msgspec.Struct) and isinstance(plain, list):  # array_like
        is_tagged = value.__struct_config__.tag is not None
        for index, name in enumerate(value.__struct_fields__[: len(plain) - is_tagged], start=is_tagged):
            yield getattr(value, name), plain[index], index


def _fields(kind: Any) -> list[tuple[str, str]]:
    """Return the fields of a class by their names as attributes and in JSON."""
    if issubclass(kind, msgspec.Struct):
        return [(one.name, one.encode_name) for one in msgspec.structs.fields(kind)]
    if hasattr(kind, "__dataclass_fields__"):
        return [(one.name, one.name) for one in fields(kind)]
    return [(one.name, one.name) for one in getattr(kind, "__attrs_attrs__", ())]
