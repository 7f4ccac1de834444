"""The OpenAPI document as a page: rendered here, with nothing from elsewhere, and no scripts."""

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
from ..web.etag import unless_unchanged
from ..web.problems import SAFE_HEADERS
from .fields import fields, kind
from .html import Html, prose, tag, together, words
from .json_schema import Json
from .openapi import document

_SAFE = f"{SAFE_HEADERS['content-security-policy']}; style-src 'self'; base-uri 'none'; form-action 'none'"

_HEAD = Html(
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><link rel="stylesheet" href="docs/style.css">'
)


class _Asked(NamedTuple):
    """An operation of the document, and where it is."""

    method: str
    path: str
    said: Json

    @property
    def name(self) -> str:
        return str(self.said["operationId"])

    @property
    def group(self) -> str:
        return str(self.said["tags"][0])


_Groups = list[tuple[str, list[_Asked]]]


def response(operations: tuple[Operation, ...], request: Request) -> Response:
    """The page."""
    headers = {"Content-Security-Policy": _SAFE}
    return unless_unchanged(request, _page(operations), "text/html", headers)


async def stylesheet(_: Service, __: Caller, request: Request) -> Response:
    """How the page looks."""
    return unless_unchanged(request, _style(), "text/css")


@cache
def _style() -> bytes:
    return (files(__package__) / "page.css").read_bytes()


@cache
def _page(operations: tuple[Operation, ...]) -> bytes:
    return page(document(operations)).encode()


def page(said: Json) -> Html:
    """A document as a page."""
    info, components = said["info"], said["components"]
    groups = [(group, [*some]) for group, some in groupby(_operations(said), key=lambda one: one.group)]
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


def _operations(said: Json) -> list[_Asked]:
    """The operations, group by group."""
    order = [one["name"] for one in said["tags"]]
    found = [
        _Asked(method.upper(), path, one)
        for path, methods in said["paths"].items()
        for method, one in methods.items()
    ]
    return sorted(found, key=lambda one: order.index(one.group))


def _menu(info: Json, groups: _Groups) -> Html:
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
        tag(
            "p",
            words("In the examples `$WINDLASS` is where this server is, and `$WINDLASS_KEY` is your key. "),
            "All of this is also ",
            tag("a", "a document for programs", href="openapi.json"),
            " (OpenAPI 3.1).",
        ),
        class_="opening",
    )


def _group(group: str, some: list[_Asked], components: Json) -> Html:
    shown = (_operation(one, components) for one in some)
    return tag("section", tag("h2", _to_itself(group, _anchor(group))), *shown, id=_anchor(group))


def _operation(one: _Asked, components: Json) -> Html:
    scopes = [scope for need in one.said["security"] for scope in need["key"]]
    needs = ["scope ", tag("code", *scopes)] if scopes else ["no key"]
    told = tag(
        "div",
        prose(one.said.get("description", "")),
        *_parameters(one.said.get("parameters", ())),
        *_taken(one.said.get("requestBody"), components["schemas"]),
        tag("h4", "Answers"),
        _answers(one.said["responses"], components["responses"]),
        class_="told-all",
    )
    return tag(
        "article",
        tag("h3", _to_itself(one.said["summary"].rstrip("."), one.name)),
        tag("p", _badge(one), " ", tag("code", one.path, class_="path"), tag("span", *needs, class_="needs")),
        tag("div", told, _examples(one, components["schemas"]), class_="both"),
        id=one.name,
    )


def _parameters(parameters: Any) -> Iterator[Html]:
    for place, title in (("path", "In the path"), ("query", "In the query"), ("header", "Headers")):
        some = [one for one in parameters if one["in"] == place]
        if some:
            yield tag("h4", title)
            described = {one["name"]: {**one["schema"], **_description(one)} for one in some}
            yield fields(described, [one["name"] for one in some if one["required"]])


def _description(said: Json) -> Json:
    return {"description": said["description"]} if "description" in said else {}


def _taken(body: Json | None, schemas: Json) -> Iterator[Html]:
    if body is None:
        return
    ((media_type, content),) = body["content"].items()
    yield tag("h4", "Body" if body["required"] else "Body, if any")
    yield tag("p", kind(content["schema"]), " · ", tag("code", media_type))
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    if name:
        whole = schemas[name]
        yield tag("details", tag("summary", "Its fields"), fields(whole["properties"], whole["required"]))


def _answers(responses: Json, problems: Json) -> Html:
    """What it answers, and in one line all that can go wrong."""
    good = [(status, one) for status, one in responses.items() if "$ref" not in one]
    wrong = [status for status, one in responses.items() if "$ref" in one]
    rows = [tag("div", tag("dt", status), tag("dd", *_good(one))) for status, one in good]
    links = [part for status in wrong for part in (" ", tag("a", status, href=f"#problem-{status}"))]
    assert all(f"problem-{status}" in problems for status in wrong)
    return tag("dl", *rows, tag("div", tag("dt", "or"), tag("dd", "a problem:", *links)), class_="answers")


def _good(one: Json) -> Iterator[str]:
    for media_type, content in one.get("content", {}).items():
        yield kind(content["schema"])
        yield " · "
        yield tag("code", media_type)
    if "content" not in one:
        yield "nothing more"
    for name, header in one.get("headers", {}).items():
        yield tag("p", tag("code", name), " ", words(header["description"]), class_="header")


def _examples(one: _Asked, schemas: Json) -> Html:
    shown = [tag("pre", tag("code", _curl(one, schemas)), tabindex="0", aria_label="Example request")]
    answers = (response for status, response in one.said["responses"].items() if status < "3")
    example = next(
        (
            content["example"]
            for each in answers
            for content in each.get("content", {}).values()
            if "example" in content
        ),
        None,
    )
    if example is not None:
        text = json.dumps(example, indent=2, ensure_ascii=False)
        shown.append(
            tag("pre", tag("code", text), tabindex="0", aria_label="Example answer", class_="answer")
        )
    return tag("div", *shown, class_="examples")


def _curl(one: _Asked, schemas: Json) -> str:
    """The operation as a command."""
    path = re.sub(r"{(\w+)}", lambda found: "$" + found[1].upper(), one.path)
    must = [each for each in one.said.get("parameters", ()) if each["in"] == "query" and each["required"]]
    query = "&".join(f"{each['name']}={sample(each['schema'], schemas)}" for each in must)
    lines = [f'curl "$WINDLASS{path}{"?" * bool(query)}{query}"']
    if one.method != "GET":
        lines[0] = f"curl -X {one.method} {lines[0][5:]}"
    if one.said["security"]:
        lines.append('-H "Authorization: Bearer $WINDLASS_KEY"')
    for media_type, content in one.said.get("requestBody", {}).get("content", {}).items():
        lines.append(f'-H "Content-Type: {media_type}"')
        value = content.get("example", None) or sample(content["schema"], schemas)
        text = json.dumps(value, indent=None if "ndjson" in media_type else 2, ensure_ascii=False)
        lines.append("-d '" + text.replace("'", "'\\''") + "'")
    return " \\\n  ".join(lines)


def sample(schema: Json, schemas: Json) -> Any:
    """A value that fits a schema, and says no more than it must."""
    match schema:
        case {"$ref": str(place)}:
            return sample(schemas[place.rpartition("/")[2]], schemas)
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
    title = tag("h2", _to_itself("problems", "problems"))
    return tag("section", title, tag("dl", *rows, class_="answers"), id="problems")


def _types(schemas: Json) -> Html:
    shown = []
    for name, one in schemas.items():
        inside = fields(one["properties"], one["required"]) if "properties" in one else tag("p", kind(one))
        title = tag("h3", _to_itself(name, f"type-{name}"))
        shown.append(tag("article", title, prose(one.get("description", "")), inside, id=f"type-{name}"))
    return tag("section", tag("h2", _to_itself("types", "types")), *shown, id="types")


def _badge(one: _Asked) -> Html:
    return tag("span", one.method, class_=f"method {one.method.lower()}")


def _to_itself(text: str, anchor: str) -> Html:
    return tag("a", text, href=f"#{anchor}")


def _anchor(group: str) -> str:
    return "group-" + re.sub(r"\W+", "-", group)
