"""The OpenAPI document, derived from the operations."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from http import HTTPStatus
from importlib import metadata
from inspect import cleandoc
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..._documents.fields import Id
from ..._handler.spec import HandlerSpec
from ..operation import JSON, Operation
from ..web.problems import CODES, TITLES, TYPE, ProblemDocument
from ..web.router import mount_path
from .examples import BODIES, HEADERS, RESPONSES
from .json_schema import Json, Schemas, without_null

_ABOUT = """
A durable task queue: it keeps every task until that task has ended.

Send your API key as `Authorization: Bearer wl_…`. Each operation names the scope that its key needs. A key
may be bound to a tenant or to queues; everything else does not exist for it. Where the scope is `read`,
`observe` will do: then responses have `[secret]` in place of payloads, results and texts.

Instants are ISO 8601 with a time zone, durations are seconds, and unknown values are null. Unknown fields,
and names that occur twice in an object, are refused. Lists are paged: follow `cursor`, or the header `Link`.

Errors are problem documents (RFC 9457): `code` is stable, `detail` is for people. A method that a path does
not support gets 405 with the header `Allow`.

`/store/…` is the private protocol between parts of windlass. It may change with every version and is not
described here.
""".strip()

_COMMON = (400, 422, 431, 500, 503)
_WITH_KEY = (401, 403, 421, 429, 501)
_WITH_BODY = (408, 413, 415)

_PROBLEM_HEADERS = {
    401: ("WWW-Authenticate",),
    429: ("RateLimit", "RateLimit-Policy", "Retry-After"),
    503: ("Retry-After",),
    507: ("Retry-After",),
}

# operation: JSON pointer into its response, parameter of the linked operations, and these
_LINKS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "enqueue": ("/id", "id", ("get_task", "list_attempts", "cancel_task")),
    "enqueue_batch": ("/tasks/0/id", "id", ("get_task", "cancel_task")),
    "list_tasks": ("/items/0/id", "id", ("get_task", "cancel_task")),
    "list_dead": ("/items/0/id", "id", ("replay_task", "discard_dead_letter")),
    "cancel_task": ("/id", "id", ("replay_task", "get_task")),
    "open_session": ("/session", "name", ("end_session",)),
}


def response(operations: tuple[Operation, ...], types: Iterable[HandlerSpec], request: Request) -> Response:
    """Return the OpenAPI document, with the types of the app that were declared with an example."""
    shown = tuple(spec for spec in types if spec.example is not None)
    return conditional_response(request, _encoded(operations, shown, mount_path(request.scope)), JSON)


def conditional_response(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the content with its ETag, or 304 if `If-None-Match` names it."""
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    sent = {**(headers or {}), "ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, sent)
    return Response(content, 200, sent, media_type=media_type)


@lru_cache(maxsize=8)  # the mount point may come from the request
def _encoded(operations: tuple[Operation, ...], types: tuple[HandlerSpec, ...], root: str) -> bytes:
    return msgspec.json.encode(with_types(document(operations, root), types))


def document(operations: tuple[Operation, ...], root: str = "") -> Json:
    """Build the document for the API mounted at `root`."""
    kinds = [kind for one in operations for kind in (one.query, one.body, one.response) if kind is not None]
    schemas = Schemas([*kinds, Id, ProblemDocument])
    paths: dict[str, Json] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, schemas)
    problems = {f"problem-{status}": _problem(status, schemas) for status in CODES if status != 405}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "windlass",
            "version": metadata.version("windlass"),
            "summary": "Enqueue, inspect and manage tasks, and write workers, in any language.",
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
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key; create one with `windlass keys create`.",
                }
            },
        },
    }


def _described(one: Operation, schemas: Schemas) -> Json:
    summary, description = one.description
    body: Json = {}
    if one.body is not None:
        content = _content(one.body, one.body_type, BODIES.get(one.name), schemas)
        body = {"required": one.requires_body, "content": content}
    made: Json = {
        "operationId": one.name,
        "tags": [one.group],
        "summary": summary,
        "description": description,
        "parameters": [*_parameters(one, schemas)],
        "requestBody": body,
        "responses": {str(status): _response(one, status, schemas) for status in _statuses(one)},
        "security": [] if one.scope is None else [{"key": [one.scope.value]}],
    }
    if one.name in _LINKS:
        place, parameter, linked = _LINKS[one.name]
        made["responses"][str(one.status)]["links"] = {
            name: {"operationId": name, "parameters": {parameter: f"$response.body#{place}"}}
            for name in linked
        }
    return {name: value for name, value in made.items() if value or name == "security"}


def _statuses(one: Operation) -> list[int]:
    """List every status that an operation may return."""
    more = (_WITH_KEY if one.scope is not None else ()) + (_WITH_BODY if one.body is not None else ())
    if one.method != "GET":
        more += (415,)  # a server without keys refuses forms
    return sorted({one.status, *one.statuses, *_COMMON, *more})


def _parameters(one: Operation, schemas: Schemas) -> Iterator[Json]:
    for name in re.findall(r"{(\w+)}", one.path):
        schema = schemas.of(Id) if name == "id" else {"type": "string", "minLength": 1}
        encoded = {} if name == "id" else {"description": "Percent-encoded, slashes included."}
        yield {"name": name, "in": "path", "required": True, **encoded, "schema": schema}
    query = schemas.whole(one.query)
    for name, declared in query["properties"].items():
        schema = dict(without_null(declared))
        described = {"description": schema.pop("description")} if "description" in schema else {}
        spread = {"style": "form", "explode": True} if schema.get("type") == "array" else {}
        required = name in query["required"]
        yield {"name": name, "in": "query", "required": required, **described, **spread, "schema": schema}
    for name in one.request_headers:
        yield {"name": name, "in": "header", "required": False, **HEADERS[name]}


def _response(one: Operation, status: int, schemas: Schemas) -> Json:
    if status >= 400:
        return {"$ref": f"#/components/responses/problem-{status}"}
    made: Json = {"description": HTTPStatus(status).phrase}
    is_page = one.response is not None and "cursor" in schemas.whole(one.response).get("properties", ())
    if names := (*one.response_headers, *(("Link",) if is_page else ())):
        made["headers"] = {name: HEADERS[name] for name in names}
    if one.response is not None and status not in (204, 304):
        made["content"] = _content(one.response, one.response_type, RESPONSES.get(one.name), schemas)
    return made


def _content(kind: Any, media_type: str, example: Any, schemas: Schemas) -> Json:
    """Describe a body. For JSON lines the schema is that of one line: OpenAPI 3.1 has no other way."""
    shown = {} if example is None else {"example": example}
    schema = schemas.of(kind)
    if media_type == "text/event-stream":
        description = "Server-sent events; the `data` of each is JSON of this type."
        schema = {"type": "string", "description": description, "contentSchema": schema}
    return {media_type: {"schema": schema, **shown}}


def _problem(status: int, schemas: Schemas) -> Json:
    codes = ", ".join(f"`{code}`" for code in CODES[status])
    made: Json = {
        "description": f"{TITLES[status][0].upper()}{TITLES[status][1:]}: {codes}.",
        "content": _content(ProblemDocument, TYPE, None, schemas),
    }
    if status in _PROBLEM_HEADERS:
        made["headers"] = {name: HEADERS[name] for name in _PROBLEM_HEADERS[status]}
    return made


# -- task types that were declared with an example -----------------------------------------------------


_COMPONENT = re.compile(r"[A-Za-z0-9._-]+")  # names that OpenAPI allows
_REFERENCE = "#/components/schemas/"


def with_types(document: Json, types: Iterable[HandlerSpec]) -> Json:
    """Add the schema of each type's payload, as the component `payload.TYPE`, and its example to a document.

    Fields that are secret are marked `writeOnly`: no response shows them.
    """
    for spec in types:
        schema = _payload_schema(spec, document["components"]["schemas"])
        for body in _enqueue_bodies(document):
            body["examples"][spec.name] = _example(spec, schema)
    return document


def _enqueue_bodies(document: Json) -> list[Json]:
    """Return the bodies that take a task; their single example becomes the first of several."""
    bodies = []
    for path in ("/tasks", "/tasks/stream"):
        for content in document["paths"][path]["post"]["requestBody"]["content"].values():
            if "example" in content:
                content["examples"] = {"your own type": {"value": content.pop("example")}}
            bodies.append(content)
    return bodies


def _example(spec: HandlerSpec, schema: str | None) -> Json:
    summary = (cleandoc(spec.handler.__doc__ or "") or spec.name).partition("\n")[0]
    described = {} if schema is None else {"description": f"The payload is a `{schema}`."}
    return {"summary": summary, **described, "value": {"type": spec.name, "payload": spec.example}}


def _payload_schema(spec: HandlerSpec, components: Json) -> str | None:
    """Add the schema of a type's payload; return its name, or None if the type's name is not one there."""
    name = f"payload.{spec.name}"
    if not _COMPONENT.fullmatch(name):
        return None
    schema, made = spec.signature.schema(f"{_REFERENCE}{name}.")
    for field in spec.defaults.secret:
        if field in schema["properties"]:
            schema["properties"][field]["writeOnly"] = True
    components[name] = schema
    components |= {f"{name}.{inner}": one for inner, one in made.items()}
    return name
