"""Build HTML for the docs page: escaped elements, prose, and lists of a schema's fields."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import msgspec

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
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "default": "default {}",
}
_OBVIOUS: tuple[Any, ...] = (None, "", [], {})


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str) -> Html:
    """Build an element. Attribute names that are Python keywords end in `_`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{together(*inside)}</{name}>")


def together(*parts: str) -> Html:
    """Join parts; escape those that are not markup."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def words(text: str) -> Html:
    """Build a line of prose; text in backticks becomes code."""
    parts = re.split(r"`([^`]+)`", text)
    return together(*(tag("code", part) if index % 2 else part for index, part in enumerate(parts)))


def prose(text: str) -> Html:
    """Build paragraphs of prose, separated by blank lines."""
    return together(*(tag("p", words(part)) for part in re.split(r"\n\s*\n", text.strip()) if part))


def kind(schema: Json) -> Html:
    """Describe the type of a value."""
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return tag("a", name, href=f"#type-{name}")
        case {"anyOf": list(some)}:
            return _either([kind(one) for one in some])
        case {"enum": list(some)}:
            return _either([tag("code", _text(one)) for one in some])
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
    """List the fields of an object, or the parameters of an operation."""
    return tag("dl", *(_field(name, one, is_required=name in required) for name, one in properties.items()))


def _field(name: str, schema: Json, *, is_required: bool) -> Html:
    must = [" ", tag("span", "required", class_="must")] if is_required else []
    bounds = "".join(f" · {one}" for one in _bounds(schema))
    text = " ".join(one["description"] for one in _parts(schema) if "description" in one)
    description = [tag("dd", words(text), class_="description")] if text else []
    described = tag("dd", kind(schema), tag("span", bounds, class_="bounds"), class_="kind")
    return tag("div", tag("dt", tag("code", name), *must), described, *description)


def _bounds(schema: Json) -> Iterator[str]:
    for part in _parts(schema):
        for key, template in _BOUNDS.items():
            if part.get(key) not in _OBVIOUS and (key, part[key]) != ("minLength", 1):
                yield template.format(_text(part[key]))


def _parts(schema: Json) -> tuple[Json, ...]:
    """Return a schema and its alternatives."""
    return (schema, *schema.get("anyOf", ()))


def _text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _either(parts: list[Html]) -> Html:
    made = [one for part in parts for one in (" or ", part)]
    return together(*made[1:])
