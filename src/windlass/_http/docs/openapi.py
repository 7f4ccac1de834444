"""The OpenAPI document, read off the operations: what it says is what the server does."""

import re
from collections.abc import Iterator
from functools import lru_cache
from http import HTTPStatus
from importlib import metadata
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..._documents.fields import Id
from ..operation import JSON, Operation
from ..web.etag import unless_unchanged
from ..web.mount import root_of
from ..web.problems import CODES, TITLES, TYPE, ProblemDocument
from .examples import ANSWERS, BODIES
from .headers import HEADERS
from .json_schema import Json, Schemas, without_null

_ABOUT = """
A durable task queue: it holds every task it was given until that task has ended.

Send your key as `Authorization: Bearer wl_…`. Each operation names the scope that its key must have. A key
may be bound to a tenant or to queues; what lies beyond does not exist for it.

Instants are ISO 8601 and name their zone. Durations are seconds. What is not known is null. A name that is
given twice, or that nobody knows, is refused. Lists come in pages: `cursor`, or the header `Link`, leads to
the next.

What goes wrong is answered as RFC 9457 says, whatever it is: `code` is stable, `detail` is for people. A
method that an address does not know is answered 405, with `Allow`.

Beside this there is `/store/…`, the protocol between parts of windlass itself. It is private, may change with
every version, and is not described here.
""".strip()

_OF_ALL = (400, 422, 431, 500, 503)
_OF_KEYS = (401, 403, 429, 501)
_OF_BODIES = (408, 413, 415)

_SAID = {
    401: ("WWW-Authenticate",),
    429: ("RateLimit", "RateLimit-Policy", "Retry-After"),
    503: ("Retry-After",),
}

_LINKS: dict[
    str, dict[str, tuple[str, str]]
] = {  # where an answer leads: the parameter, and where it is found
    "enqueue": {
        "get_task": ("id", "/id"),
        "list_attempts": ("id", "/id"),
        "cancel_task": ("id", "/id"),
    },
    "enqueue_batch": {"get_task": ("id", "/tasks/0/id"), "cancel_task": ("id", "/tasks/0/id")},
    "list_tasks": {"get_task": ("id", "/items/0/id"), "cancel_task": ("id", "/items/0/id")},
    "list_dead": {"replay_task": ("id", "/items/0/id"), "discard_dead_letter": ("id", "/items/0/id")},
    "cancel_task": {"replay_task": ("id", "/id"), "get_task": ("id", "/id")},
    "open_session": {"end_session": ("name", "/session")},
}


def response(operations: tuple[Operation, ...], request: Request) -> Response:
    """The document."""
    return unless_unchanged(request, _encoded(operations, root_of(request.scope)), JSON)


@lru_cache(maxsize=8)  # Where it is mounted may be in the address.
def _encoded(operations: tuple[Operation, ...], root: str) -> bytes:
    return msgspec.json.encode(document(operations, root))


def document(operations: tuple[Operation, ...], root: str = "") -> Json:
    """The document of what can be asked at `root`."""
    kinds = [kind for one in operations for kind in (one.query, one.body, one.answer) if kind is not None]
    schemas = Schemas([*kinds, Id, ProblemDocument])
    names = {one.name for one in operations}
    paths: dict[str, Json] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, names, schemas)
    problems = {f"problem-{status}": _problem(status, schemas) for status in CODES if status != 405}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "windlass",
            "version": metadata.version("windlass"),
            "summary": "Hand in tasks, look at them, steer them, and be a worker, in any language.",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": root or "/"}],
        "tags": [{"name": group} for group in dict.fromkeys(one.group for one in operations)],
        "paths": paths,
        "components": {
            "schemas": schemas.within(paths, problems),
            "responses": problems,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key: `windlass keys create`."}
            },
        },
    }


def _described(one: Operation, names: set[str], schemas: Schemas) -> Json:
    summary, description = one.told
    made: Json = {
        "operationId": one.name,
        "tags": [one.group],
        "summary": summary,
        "description": description,
        "parameters": [*_parameters(one, schemas)],
        "requestBody": _body(one, schemas),
        "responses": {str(status): _answer(one, status, schemas) for status in _statuses(one)},
        "security": [] if one.scope is None else [{"key": [one.scope.value]}],
    }
    links = {
        name: {"operationId": name, "parameters": {parameter: f"$response.body#{place}"}}
        for name, (parameter, place) in _LINKS.get(one.name, {}).items()
        if name in names
    }
    if links:
        made["responses"][str(one.status)]["links"] = links
    return {name: value for name, value in made.items() if value or name == "security"}


def _statuses(one: Operation) -> list[int]:
    """Every status that it may end in."""
    more = (_OF_KEYS if one.scope is not None else ()) + (_OF_BODIES if one.body is not None else ())
    lost = (404,) if "{" in one.path else ()
    return sorted({one.status, *one.answers, *_OF_ALL, *more, *lost})


def _parameters(one: Operation, schemas: Schemas) -> Iterator[Json]:
    for name in re.findall(r"{(\w+)}", one.path):
        schema = schemas.of(Id) if name == "id" else {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    query = schemas.whole(one.query)
    for name, declared in query["properties"].items():
        schema = dict(without_null(declared))
        told = {"description": schema.pop("description")} if "description" in schema else {}
        spread = {"style": "form", "explode": True} if schema.get("type") == "array" else {}
        required = name in query["required"]
        yield {"name": name, "in": "query", "required": required, **told, **spread, "schema": schema}
    for name in one.hears:
        yield {"name": name, "in": "header", "required": False, **HEADERS[name]}


def _body(one: Operation, schemas: Schemas) -> Json | None:
    if one.body is None:
        return None
    return {
        "required": one.needs_body,
        "content": _content(one.body, one.takes, BODIES.get(one.name), schemas),
    }


def _answer(one: Operation, status: int, schemas: Schemas) -> Json:
    if status >= 400:
        return {"$ref": f"#/components/responses/problem-{status}"}
    made: Json = {"description": HTTPStatus(status).phrase}
    if says := _headers((*one.says, *_leading(one, schemas))):
        made["headers"] = says
    if one.answer is not None and status not in (204, 304):
        made["content"] = _content(one.answer, one.gives, ANSWERS.get(one.name), schemas)
    return made


def _leading(one: Operation, schemas: Schemas) -> tuple[str, ...]:
    """The header that pages have besides."""
    has_more = one.answer is not None and "cursor" in schemas.whole(one.answer).get("properties", ())
    return ("Link",) if has_more else ()


def _content(kind: Any, media_type: str, example: Any, schemas: Schemas) -> Json:
    """What is sent or answered. Of lines the schema is each one's: OpenAPI 3.1 cannot say it otherwise."""
    shown = {} if example is None else {"example": example}
    schema = schemas.of(kind)
    if media_type == "text/event-stream":
        told = "Server-sent events, each with JSON of this type as its `data`."
        schema = {"type": "string", "description": told, "contentSchema": schema}
    return {media_type: {"schema": schema, **shown}}


def _problem(status: int, schemas: Schemas) -> Json:
    codes = ", ".join(f"`{code}`" for code in CODES[status])
    made: Json = {
        "description": f"{TITLES[status][0].upper()}{TITLES[status][1:]}: {codes}.",
        "content": _content(ProblemDocument, TYPE, None, schemas),
    }
    if says := _headers(_SAID.get(status, ())):
        made["headers"] = says
    return made


def _headers(names: tuple[str, ...]) -> Json:
    return {name: HEADERS[name] for name in names}
