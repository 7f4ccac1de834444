"""The OpenAPI document as an HTML page, without scripts."""

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..._html.assets import asset_response, stylesheet
from ..._html.environment import render
from ..auth import Caller
from ..operation import Operation
from ..service import Service
from ..web.problems import SAFE_HEADERS, Problem
from .json_schema import Json
from .openapi import conditional_response, document

_SAFE = (
    f"{SAFE_HEADERS['content-security-policy']}; style-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
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


class _PageOperation(NamedTuple):
    """An operation of the document, with its method and path."""

    name: str
    group: str
    method: str
    path: str
    spec: Json


def response(operations: tuple[Operation, ...], request: Request) -> Response:
    """Return the page."""
    headers = {"Content-Security-Policy": _SAFE}
    return conditional_response(request, _page(operations), "text/html", headers)


def style_path() -> str:
    """Return the path of the stylesheet, which changes with its content."""
    return f"/docs/{stylesheet().name}"


async def style(_: Service, __: Caller, request: Request) -> Response:
    """Return the stylesheet of the page."""
    found = asset_response(stylesheet().name, request)
    if found is None:
        raise Problem("not-found", "there is no such file")
    return found


@cache
def _page(operations: tuple[Operation, ...]) -> bytes:
    return page(document(operations)).encode()


def page(spec: Json) -> str:
    """Render an OpenAPI document."""
    schemas = spec["components"]["schemas"]
    groups = [
        {"name": name, "anchor": _anchor(name), "operations": [_shown(one, schemas) for one in some]}
        for name, some in groupby(_operations(spec), key=lambda one: one.group)
    ]
    return render(
        "reference.html",
        spec=spec,
        groups=groups,
        kinds=_KINDS,
        bounds=bounds,
        description=_description,
        value_text=_text,
    )


def _operations(spec: Json) -> list[_PageOperation]:
    """List the operations by group."""
    order = [one["name"] for one in spec["tags"]]
    found = [
        _PageOperation(one["operationId"], one["tags"][0], method.upper(), path, one)
        for path, methods in spec["paths"].items()
        for method, one in methods.items()
    ]
    return sorted(found, key=lambda one: order.index(one.group))


def _shown(one: _PageOperation, schemas: Json) -> Json:
    """Return what the page shows of an operation."""
    given = one.spec.get("parameters", ())
    responses = one.spec["responses"]
    answers = [(status, each) for status, each in responses.items() if "$ref" not in each]
    return {
        **one._asdict(),
        "scope": "".join(scope for need in one.spec["security"] for scope in need["key"]),
        "parameters": {
            place: {
                each["name"]: {**each["schema"], "description": each.get("description", "")}
                for each in given
                if each["in"] == place
            }
            for place in ("path", "query", "header")
        },
        "required": [each["name"] for each in given if each["required"]],
        "body": _body(one.spec.get("requestBody"), schemas),
        "answers": [(status, {"content": {}, "headers": {}, **each}) for status, each in answers],
        "problems": [status for status, each in responses.items() if "$ref" in each],
        "curl": _curl(one, schemas),
        "example": _example(responses),
    }


def _body(body: Json | None, schemas: Json) -> Json | None:
    if body is None:
        return None
    ((media_type, content),) = body["content"].items()
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    return {
        "required": body["required"],
        "schema": content["schema"],
        "media_type": media_type,
        "type": schemas.get(name),
    }


def _example(responses: Json) -> str | None:
    """Return the example of the first response that has one."""
    for status, each in responses.items():
        for content in each.get("content", {}).values():
            if status < "3" and "example" in content:
                return json.dumps(content["example"], indent=2, ensure_ascii=False)
    return None


def _curl(one: _PageOperation, schemas: Json) -> str:
    """Write the operation as a curl command."""
    path = re.sub(r"{(\w+)}", lambda found: "$" + found[1].upper(), one.path)
    must = [each for each in one.spec.get("parameters", ()) if each["in"] == "query" and each["required"]]
    query = "&".join(f"{each['name']}={sample(each['schema'], schemas)}" for each in must)
    lines = [f'curl "$WINDLASS{path}{"?" * bool(query)}{query}"']
    if one.method != "GET":
        lines[0] = f"curl -X {one.method} {lines[0][5:]}"
    if one.spec["security"]:
        lines.append('-H "Authorization: Bearer $WINDLASS_KEY"')
    for media_type, content in one.spec.get("requestBody", {}).get("content", {}).items():
        lines.append(f'-H "Content-Type: {media_type}"')
        value = content.get("example", None) or sample(content["schema"], schemas)
        text = json.dumps(value, indent=None if "ndjson" in media_type else 2, ensure_ascii=False)
        lines.append("-d '" + text.replace("'", "'\\''") + "'")
    return " \\\n  ".join(lines)


def sample(schema: Json, schemas: Json) -> Any:
    """Build a minimal value that fits a schema."""
    match schema:
        case {"$ref": str(reference)}:
            return sample(schemas[reference.rpartition("/")[2]], schemas)
        case {"examples": [first, *_]} | {"default": first} | {"enum": [first, *_]}:
            return first
        case {"anyOf": [first, *_]}:
            return sample(first, schemas)
        case {"type": "object"}:
            properties = schema.get("properties", {})
            return {name: sample(properties[name], schemas) for name in schema.get("required", ())}
        case {"type": "array"}:
            return [sample(schema.get("items", {}), schemas)] if schema.get("minItems") else []
        case {"format": "date-time"}:
            return "2026-08-01T06:00:00Z"
        case {"type": "string"}:
            return "text"
        case {"type": "boolean"}:
            return True
        case {"type": "integer" | "number"}:
            return schema.get("minimum", 1)
        case _:
            return None


def bounds(schema: Json) -> Iterator[str]:
    """Describe the bounds of a value."""
    for part in _parts(schema):
        for key, template in _BOUNDS.items():
            if part.get(key) not in _OBVIOUS and (key, part[key]) != ("minLength", 1):
                yield template.format(_text(part[key]))


def _description(schema: Json) -> str:
    return " ".join(one["description"] for one in _parts(schema) if "description" in one)


def _parts(schema: Json) -> tuple[Json, ...]:
    """Return a schema and its alternatives."""
    return (schema, *schema.get("anyOf", ()))


def _text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _anchor(group: str) -> str:
    return "group-" + re.sub(r"\W+", "-", group)
