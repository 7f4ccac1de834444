"""Schemas in words: of which kind a value is, and which fields an object has."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from .html import Html, tag, together, words
from .json_schema import Json

_KINDS = {
    "array": "list",
    "object": "object",
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = {
    "minimum": "{} or more",
    "exclusiveMinimum": "more than {}",
    "maximum": "{} at most",
    "minLength": "{} characters or more",
    "maxLength": "{} characters at most",
    "minItems": "{} or more",
    "maxItems": "{} at most",
    "default": "default {}",
}
_GO_WITHOUT_SAYING: tuple[Any, ...] = (None, "", [], {})


def kind(schema: Json) -> Html:
    """Of which kind a value is."""
    match schema:
        case {"$ref": str(place)}:
            name = place.rpartition("/")[2]
            return tag("a", name, href=f"#type-{name}")
        case {"anyOf": list(some)}:
            return _either([kind(one) for one in some])
        case {"enum": list(some)}:
            return _either([tag("code", _said(one)) for one in some])
        case {"contentSchema": dict(each)}:
            return together("events of ", kind(each))
        case {"type": "array", "items": dict(item)}:
            return together("list of ", kind(item))
        case {"format": "date-time"}:
            return together("instant")
        case {"type": str(name)}:
            return together(_KINDS[name])
        case _:
            return together("any JSON")


def fields(properties: dict[str, Json], required: Sequence[str]) -> Html:
    """The fields of an object, or the parameters of an operation."""
    return tag("dl", *(_field(name, one, is_required=name in required) for name, one in properties.items()))


def _field(name: str, schema: Json, *, is_required: bool) -> Html:
    must = [" ", tag("span", "required", class_="must")] if is_required else []
    bounds = "".join(f" · {one}" for one in _bounds(schema))
    said = " ".join(one["description"] for one in _parts(schema) if "description" in one)
    told = [tag("dd", words(said), class_="told")] if said else []
    described = tag("dd", kind(schema), tag("span", bounds, class_="bounds"), class_="kind")
    return tag("div", tag("dt", tag("code", name), *must), described, *told)


def _bounds(schema: Json) -> Iterator[str]:
    for place in _parts(schema):
        for key, said in _BOUNDS.items():
            if place.get(key) not in _GO_WITHOUT_SAYING and (key, place[key]) != ("minLength", 1):
                yield said.format(_said(place[key]))


def _parts(schema: Json) -> tuple[Json, ...]:
    """A schema, and those of which one must fit."""
    return (schema, *schema.get("anyOf", ()))


def _said(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _either(parts: list[Html]) -> Html:
    made = [one for part in parts for one in (" or ", part)]
    return together(*made[1:])
