"""JSON Schema of request and response types."""

import json
import re
from collections.abc import Iterable
from inspect import cleandoc
from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]

_PREFIX = "#/components/schemas/"


class Schemas:
    """Schemas of some types, and the components that they refer to."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        wanted = [*dict.fromkeys(kinds)]
        made, components = msgspec.json.schema_components(wanted, ref_template=_PREFIX + "{name}")
        self._made: dict[Any, Json] = dict(zip(wanted, _portable(made), strict=True))
        self._components: dict[str, Json] = _portable(components)
        for one in self._components.values():
            if "description" in one:
                one["description"] = cleandoc(one["description"])

    def of(self, kind: Any) -> Json:
        """Return the schema of a type: a reference for structs."""
        return self._made[kind]

    def whole(self, kind: Any) -> Json:
        """Return the schema of a type with references resolved."""
        made = self._made[kind]
        return self._components[made["$ref"].removeprefix(_PREFIX)] if "$ref" in made else made

    def within(self, *documents: Any) -> dict[str, Json]:
        """Return the components that these refer to, directly or not."""
        found: dict[str, Json] = {}
        todo = _referred(documents)
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = self._components[name]
                todo |= _referred(found[name])
        return {name: found[name] for name in sorted(found)}


def without_null(schema: Json) -> Json:
    """Remove null from a parameter's schema: a query cannot express it."""
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if not some:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    kept = {"default": schema["default"]} if schema.get("default") is not None else {}
    return {**rest, **kept, **(some[0] if len(some) == 1 else {"anyOf": some})}


def _portable(value: Any) -> Any:
    """Rewrite patterns so that `\\w` matches letters of any script in JSON Schema too."""
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
    """Python's `\\w` matches every script, that of JSON Schema (ECMA-262) only ASCII."""
    made = pattern.replace(r"[^\W\d]", r"[\p{L}_]").replace(r"[\w", r"[\p{L}\p{N}_")
    return made.replace(r"\w", r"[\p{L}\p{N}_]")


def _referred(value: Any) -> set[str]:
    return set(re.findall(rf'"{_PREFIX}([^"]+)"', json.dumps(value)))
