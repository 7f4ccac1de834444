"""The places of a request into which text can be put, read from the OpenAPI document of a server."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

Json: TypeAlias = Any
Path: TypeAlias = tuple[str | int, ...]

MAX_DEPTH = 5
METHODS = ("get", "post", "put", "patch", "delete")


class Place(Struct, frozen=True):
    """A place in the request of an operation: in its `path`, `query` or `header`, or within its `body`."""

    operation: str
    part: str
    path: Path
    is_id: bool
    is_list: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.part} {'/'.join(map(str, self.path))}"


def operations(document: Json) -> dict[str, tuple[str, str, Json]]:
    """Method, path and description of each operation, by its id."""
    return {
        described["operationId"]: (method.upper(), path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if method in METHODS
    }


def places(document: Json) -> Iterator[Place]:
    """Every place of every operation."""
    for name, (_, _, described) in operations(document).items():
        for parameter in described.get("parameters", ()):
            for _, kind, is_list in _texts(document, parameter["schema"], ()):
                yield Place(name, parameter["in"], (parameter["name"],), kind, is_list)
        for content in described.get("requestBody", {}).get("content", {}).values():
            for path, kind, _ in _texts(document, content["schema"], ()):
                yield Place(name, "body", path, kind)


def _texts(document: Json, schema: Json, at: Path) -> Iterator[tuple[Path, bool, bool]]:
    """Where a value of this schema can hold text; whether it is an id there, and one of a list."""
    if "$ref" in schema:
        yield from _texts(document, _resolved(document, schema["$ref"]), at)
        return
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    for one in options:
        yield from _texts(document, one, at)
    if len(at) >= MAX_DEPTH or schema.get("type") == "boolean":
        return
    kind = schema.get("type")
    if kind == "string" and "enum" not in schema and schema.get("format") not in ("date-time", "date"):
        yield at, "[0-9a-f]{8}-" in schema.get("pattern", ""), False
    elif kind == "array":
        for path, is_id, _ in _texts(document, schema.get("items", {}), (*at, 0)):
            yield path, is_id, True
    elif kind == "object":
        for name, one in schema.get("properties", {}).items():
            yield from _texts(document, one, (*at, name))
        if isinstance(more := schema.get("additionalProperties"), Mapping):
            yield from _texts(document, more, (*at, "FOREIGN-bob"))
        if "properties" not in schema:
            yield (*at, "x"), False, False
    elif not kind and not options and "enum" not in schema and "const" not in schema:  # any JSON
        yield (*at, "x"), False, False


def _resolved(document: Json, reference: str) -> Json:
    found = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def with_value(document: Json, schema: Json, base: Json, path: Path, value: Json) -> Json:
    """Return a body with a value at a place; what leads there is made as the schema requires."""
    made = copy.deepcopy(base)
    if not path:
        return value
    here, at = made, schema
    for step, following in zip(path, [*path[1:], None], strict=True):
        at = _below(document, at, step)
        if following is None:
            _set(here, step, value)
        else:
            if not isinstance(below := _get(here, step), dict if isinstance(following, str) else list):
                below = [] if isinstance(following, int) else _least(document, at)
                _set(here, step, below)
            here = below
    return made


def _get(container: Json, step: str | int) -> Json:
    if isinstance(step, int):
        return container[step] if len(container) > step else None
    return container.get(step)


def _set(container: Json, step: str | int, value: Json) -> None:
    if isinstance(step, int):
        container[step:] = [value]
    else:
        container[step] = value


def _below(document: Json, schema: Json, step: str | int) -> Json:
    """The schema of what is below a step; {} if nothing says."""
    for one in _plain(document, schema):
        if isinstance(step, int) and "items" in one:
            return one["items"]
        if isinstance(step, str) and step in one.get("properties", {}):
            return one["properties"][step]
    return {}


def _plain(document: Json, schema: Json) -> Iterator[Json]:
    if "$ref" in schema:
        yield from _plain(document, _resolved(document, schema["$ref"]))
        return
    yield schema
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _plain(document, one)


_KNOWN: dict[str, Json] = {
    "type": "t",
    "queue": "mail",
    "fence": 1,
    "outcome": "returned",
    "id": "00000000-0000-7000-8000-000000000000",
    "fraction": 0.5,
    "message": "m",
    "name": "w",
    "session": "s",
    "label": "x",
    "scopes": ["read"],
}


def _least(document: Json, schema: Json) -> Json:
    """An object with what the schema requires."""
    for one in _plain(document, schema):
        if one.get("type") == "object" and "properties" in one:
            return {name: _KNOWN[name] for name in one.get("required", ())}
    return {}
