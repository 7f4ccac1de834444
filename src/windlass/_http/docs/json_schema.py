"""The types that are sent and answered, as JSON Schema."""

import json
import re
from collections.abc import Iterable
from inspect import cleandoc
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

Json: TypeAlias = dict[str, Any]

_PLACE = "#/components/schemas/"


class Schemas:
    """A schema for each of some types, and the components that they refer to."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        wanted = [*dict.fromkeys(kinds)]
        self._made: dict[Any, Json]
        self._components: dict[str, Json]
        made, self._components = msgspec.json.schema_components(
            wanted, schema_hook=_any, ref_template=_PLACE + "{name}"
        )
        made, self._components = _portable(made), _portable(self._components)
        self._made = dict(zip(wanted, made, strict=True))
        for one in self._components.values():
            if "description" in one:
                one["description"] = cleandoc(one["description"])

    def of(self, kind: Any) -> Json:
        """The schema of a type; of our own ones, a reference."""
        return self._made[kind]

    def whole(self, kind: Any) -> Json:
        """The schema itself, whether it is referred to or not."""
        made = self._made[kind]
        return self._components[made["$ref"].removeprefix(_PLACE)] if "$ref" in made else made

    def within(self, *documents: Any) -> dict[str, Json]:
        """The components that these refer to, and those that they refer to in turn."""
        found: dict[str, Json] = {}
        todo = _referred(documents)
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = self._components[name]
                todo |= _referred(found[name])
        return {name: found[name] for name in sorted(found)}


def without_null(schema: Json) -> Json:
    """The same for a parameter, which is there or not: null cannot be said in a query."""
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if not some:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    kept = {"default": schema["default"]} if schema.get("default") is not None else {}
    return {**rest, **kept, **(some[0] if len(some) == 1 else {"anyOf": some})}


def _portable(value: Any) -> Any:
    """The same, with patterns that mean elsewhere what they mean here: letters of any script."""
    match value:
        case dict():
            return {
                key: _in_any_script(one) if key == "pattern" and isinstance(one, str) else _portable(one)
                for key, one in value.items()
            }
        case list() | tuple():
            return [_portable(one) for one in value]
        case _:
            return value


def _in_any_script(pattern: str) -> str:
    """Python's `\\w` knows every script, that of JSON Schema (ECMA-262) only ASCII."""
    made = pattern.replace(r"[^\W\d]", r"[\p{L}_]").replace(r"[\w", r"[\p{L}\p{N}_")
    return made.replace(r"\w", r"[\p{L}\p{N}_]")


def _any(kind: type) -> Json:
    """The schema of what msgspec does not look into: JSON of any kind."""
    if kind is Raw:
        return {}
    raise NotImplementedError


def _referred(value: Any) -> set[str]:
    return set(re.findall(rf'"{_PLACE}([^"]+)"', json.dumps(value)))
