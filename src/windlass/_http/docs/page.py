"""The OpenAPI document as an HTML page: self-contained, without scripts."""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ..auth import Caller
from ..operation import Operation
from ..service import Service
from ..web.problems import SAFE_HEADERS
from .html import Html, fields, kind, prose, tag, together, words
from .json_schema import Json
from .openapi import conditional_response, document

_SAFE = f"{SAFE_HEADERS['content-security-policy']}; style-src 'self'; base-uri 'none'; form-action 'none'"

_EXAMPLES = "In the examples, `$WINDLASS` is the URL of this server and `$WINDLASS_KEY` is your API key. "

_HEAD = Html(
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><link rel="stylesheet" href="docs/style.css">'
)


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


async def stylesheet(_: Service, __: Caller, request: Request) -> Response:
    """Return the stylesheet of the page."""
    return conditional_response(request, _style(), "text/css")


@cache
def _style() -> bytes:
    return (files(__package__) / "page.css").read_bytes()


@cache
def _page(operations: tuple[Operation, ...]) -> bytes:
    return page(document(operations)).encode()


def page(spec: Json) -> Html:
    """Render an OpenAPI document."""
    info, components = spec["info"], spec["components"]
    groups = [(group, [*some]) for group, some in groupby(_operations(spec), key=lambda one: one.group)]
    main = tag(
        "main",
        _opening(info),
        *(_group(group, some, components) for group, some in groups),
        _problems(components["responses"]),
        _types(components["schemas"]),
        id="main",
    )
    title = tag("title", f"{info['title']} {info['version']}: HTTP API")
    skip = tag("a", "Skip to the operations", href="#main", class_="skip")
    body = tag("body", skip, _menu(info, groups), main)
    return together(Html("<!doctype html>"), tag("html", tag("head", _HEAD, title), body, lang="en"))


def _operations(spec: Json) -> list[_PageOperation]:
    """List the operations by group."""
    order = [one["name"] for one in spec["tags"]]
    found = [
        _PageOperation(one["operationId"], one["tags"][0], method.upper(), path, one)
        for path, methods in spec["paths"].items()
        for method, one in methods.items()
    ]
    return sorted(found, key=lambda one: order.index(one.group))


def _menu(info: Json, groups: list[tuple[str, list[_PageOperation]]]) -> Html:
    parts: list[Html] = []
    for group, some in groups:
        links = (tag("li", tag("a", _badge(one), " ", one.path, href=f"#{one.name}")) for one in some)
        parts += [tag("h2", tag("a", group, href=f"#{_anchor(group)}")), tag("ul", *links)]
    parts += [tag("h2", tag("a", name, href=f"#{name}")) for name in ("problems", "types")]
    title = tag(
        "p", tag("a", info["title"], href="#main"), " ", tag("small", info["version"]), class_="title"
    )
    return tag("header", title, tag("nav", *parts, aria_label="Operations"))


def _opening(info: Json) -> Html:
    return tag(
        "section",
        tag("h1", "The HTTP API of ", info["title"]),
        tag("p", info["summary"], class_="lead"),
        prose(info["description"]),
        tag("p", words(_EXAMPLES), "The same as ", tag("a", "OpenAPI 3.1", href="openapi.json"), "."),
        class_="opening",
    )


def _group(group: str, some: list[_PageOperation], components: Json) -> Html:
    shown = (_operation(one, components) for one in some)
    return tag("section", tag("h2", _self_link(group, _anchor(group))), *shown, id=_anchor(group))


def _operation(one: _PageOperation, components: Json) -> Html:
    scopes = [scope for need in one.spec["security"] for scope in need["key"]]
    needs = ["scope ", tag("code", *scopes)] if scopes else ["no key"]
    text = tag(
        "div",
        prose(one.spec.get("description", "")),
        *_parameters(one.spec.get("parameters", ())),
        *_request_body(one.spec.get("requestBody"), components["schemas"]),
        tag("h4", "Responses"),
        _responses(one.spec["responses"]),
        class_="text",
    )
    return tag(
        "article",
        tag("h3", _self_link(one.spec["summary"].rstrip("."), one.name)),
        tag("p", _badge(one), " ", tag("code", one.path, class_="path"), tag("span", *needs, class_="needs")),
        tag("div", text, _examples(one, components["schemas"]), class_="both"),
        id=one.name,
    )


def _parameters(parameters: Any) -> Iterator[Html]:
    for place, title in (("path", "In the path"), ("query", "In the query"), ("header", "Headers")):
        some = [one for one in parameters if one["in"] == place]
        if some:
            yield tag("h4", title)
            described = {
                one["name"]: {**one["schema"], "description": one.get("description", "")} for one in some
            }
            yield fields(described, [one["name"] for one in some if one["required"]])


def _request_body(body: Json | None, schemas: Json) -> Iterator[Html]:
    if body is None:
        return
    ((media_type, content),) = body["content"].items()
    yield tag("h4", "Body" if body["required"] else "Body (optional)")
    yield tag("p", kind(content["schema"]), " · ", tag("code", media_type))
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    if name:
        whole = schemas[name]
        yield tag("details", tag("summary", "Fields"), fields(whole["properties"], whole["required"]))


def _responses(responses: Json) -> Html:
    """List the responses, and in one line the problems."""
    successes = [(status, one) for status, one in responses.items() if "$ref" not in one]
    problem_statuses = [status for status, one in responses.items() if "$ref" in one]
    rows = [tag("div", tag("dt", status), tag("dd", *_success(one))) for status, one in successes]
    links = [
        part for status in problem_statuses for part in (" ", tag("a", status, href=f"#problem-{status}"))
    ]
    return tag("dl", *rows, tag("div", tag("dt", "or"), tag("dd", "a problem:", *links)), class_="responses")


def _success(one: Json) -> Iterator[str]:
    for media_type, content in one.get("content", {}).items():
        yield kind(content["schema"])
        yield " · "
        yield tag("code", media_type)
    if "content" not in one:
        yield "no body"
    for name, header in one.get("headers", {}).items():
        yield tag("p", tag("code", name), " ", words(header["description"]), class_="header")


def _examples(one: _PageOperation, schemas: Json) -> Html:
    shown = [tag("pre", tag("code", _curl(one, schemas)), tabindex="0", aria_label="Example request")]
    answers = (each for status, each in one.spec["responses"].items() if status < "3")
    contents = (content for each in answers for content in each.get("content", {}).values())
    for example in [content["example"] for content in contents if "example" in content][:1]:
        text = tag("code", json.dumps(example, indent=2, ensure_ascii=False))
        shown.append(tag("pre", text, tabindex="0", aria_label="Example response", class_="response"))
    return tag("div", *shown, class_="examples")


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


def _problems(problems: Json) -> Html:
    rows = [
        tag("div", tag("dt", name.rpartition("-")[2]), tag("dd", words(one["description"])), id=name)
        for name, one in problems.items()
    ]
    title = tag("h2", _self_link("problems", "problems"))
    return tag("section", title, tag("dl", *rows, class_="responses"), id="problems")


def _types(schemas: Json) -> Html:
    shown = []
    for name, one in schemas.items():
        inside = fields(one["properties"], one["required"]) if "properties" in one else tag("p", kind(one))
        title = tag("h3", _self_link(name, f"type-{name}"))
        shown.append(tag("article", title, prose(one.get("description", "")), inside, id=f"type-{name}"))
    return tag("section", tag("h2", _self_link("types", "types")), *shown, id="types")


def _badge(one: _PageOperation) -> Html:
    return tag("span", one.method, class_=f"method {one.method.lower()}")


def _self_link(text: str, anchor: str) -> Html:
    return tag("a", text, href=f"#{anchor}")


def _anchor(group: str) -> str:
    return "group-" + re.sub(r"\W+", "-", group)
