"""Operations of the API as data: routes, authorisation and the OpenAPI document are all derived from them."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from .._client.operator import Operator
from .._model.brief import Brief
from .._model.filter import By
from .._model.key import Scope
from .auth import Caller
from .service import Service
from .web.body import decode_body, decode_errors, decode_json, read_body
from .web.load import held_by
from .web.off_loop import off_loop
from .web.problems import Problem
from .web.router import mount_path

P = ParamSpec("P")
Q = TypeVar("Q")
B_co = TypeVar("B_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound="Handler")

JSON = "application/json"


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters."""


class ApiRequest(Brief, Struct, Generic[Q, B_co], frozen=True, kw_only=True):
    """A request that has been authorised and decoded; `http` is Starlette's."""

    service: Service
    caller: Caller
    http: Request
    query: Q
    body: B_co
    raw: bytes = b""

    def path(self, name: str) -> str:
        """Return a path parameter."""
        parameter: str = self.http.path_params[name]
        return parameter

    def off_loop(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        """Call a function that processes the body; in a thread if the body is large."""
        return off_loop(len(self.raw), function, *args, **named)

    def begin_stream(self, size: int = 0) -> None:
        """Count this request as a stream that keeps `size` bytes; raise 429 or 503 if there are too many."""
        held_by(self.http).begin_stream(size)

    async def recheck_key(self) -> None:
        """Raise 401 if the key has been revoked or has expired since the request began."""
        await self.service.authenticator.authenticate(self.http)

    def location(self, task_id: str) -> dict[str, str]:
        """Return the Location header of a task."""
        return {"Location": f"{mount_path(self.http.scope)}/tasks/{task_id}"}

    def operator(self, why: str = "") -> Operator:
        """Return an operator whose actions the audit log attributes to the caller."""
        return self.service.operator.acting_as(self.by(why))

    def by(self, why: str = "") -> By:
        """Return the caller and the reason, for the audit log."""
        return By(who=self.caller.name, why=why)


AnyRequest: TypeAlias = ApiRequest[Any, Any]
"""A request whose query and body are not read; as a handler's parameter: it has neither."""


class ApiResponse(Brief, Struct, Generic[R], frozen=True, kw_only=True):
    """A response with a status or headers of its own; handlers return a bare value otherwise."""

    value: R
    status: int | None = None  # None: the operation's
    headers: Mapping[str, str] = {}


Handler: TypeAlias = Callable[[Any], Awaitable[Any]]


class Operation(Struct, frozen=True, kw_only=True):
    """One method at one path.

    Without a `scope` it needs no key. `bound`: keys bound to a tenant or queues may use it; the handler keeps
    within their bounds. `batch`: its body may be as large as that of a batch. `urgent`: it is served however
    busy the server is, as others depend on it. `statuses` are those besides `status` and the ones that every
    operation may return; 404 is added to paths with parameters.
    """

    method: str
    path: str
    handler: Handler
    group: str
    scope: Scope | None
    bound: bool = False
    query: Any = NoQuery
    body: Any = None
    body_type: str = JSON
    requires_body: bool = True
    batch: bool = False
    urgent: bool = False
    response: Any = None
    response_type: str = JSON
    status: int = 200
    statuses: tuple[int, ...] = ()
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operationId."""
        return self.handler.__name__

    @property
    def description(self) -> tuple[str, str]:
        """Summary and description, from the handler's docstring."""
        first, _, rest = (self.handler.__doc__ or "").strip().partition("\n")
        return first, "\n".join(line.strip() for line in rest.strip().splitlines())

    def authorise(self, caller: Caller) -> None:
        """Raise 403 unless the caller's key has the scope, and no bounds that exclude the operation."""
        if self.scope is not None:
            caller.require_scope(self.scope)
        if not self.bound:
            caller.require_unbound()

    def decode(self, raw: bytes) -> Any:
        """Decode a body of the declared type."""
        return _decoders[self.body].decode(raw)

    async def respond(self, service: Service, caller: Caller, request: Request) -> Response:
        """Authorise, decode, run the handler, and encode the response."""
        self.authorise(caller)
        query = read_query(request, self.query)
        body, raw = None, b""
        if self.body is not None and self.body_type == JSON:
            raw = await read_body(request, batch=self.batch, optional=not self.requires_body)
            if not raw and not self.requires_body:
                raw = b"{}"
            body = await decode_body(raw, self.decode)
        result = await self.handler(
            ApiRequest(service=service, caller=caller, http=request, query=query, body=body, raw=raw)
        )
        if isinstance(result, Response):
            return result
        if not isinstance(result, ApiResponse):
            result = ApiResponse(value=result)
        status = result.status or self.status
        if status == 204:
            return Response(b"", status, dict(result.headers))
        content = _encoder.encode(result.value)
        return Response(content, status, dict(result.headers), media_type=self.response_type)


class Operations:
    """Collects the operations of one group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.all: list[Operation] = []

    def __call__(self, method: str, path: str, scope: Scope | None, **options: Any) -> Callable[[H], H]:
        """Declare the decorated function as the handler; its docstring becomes the description.

        The types of query, body and response are those of its annotations unless given.
        """
        if "{" in path:
            options["statuses"] = (404, *options.get("statuses", ()))

        def declare(handler: H) -> H:
            given = {"scope": scope, "group": self.group, **_annotated_types(handler), **options}
            one = Operation(method=method, path=path, handler=handler, **given)
            _list_parameters(one.query)  # fails here if the type is unsuitable
            if one.body is not None:
                _decoders[one.body] = msgspec.json.Decoder(one.body)
            self.all.append(one)
            return handler

        return declare


def _annotated_types(handler: Handler) -> dict[str, Any]:
    hints = get_type_hints(handler)
    query, body = get_args(hints["request"])
    response = hints["return"]
    if get_origin(response) is ApiResponse:
        (response,) = get_args(response)
    none = (Any, NoneType)
    return {
        "query": NoQuery if query is Any else query,
        "body": None if body in none else body,
        "response": None if response in none else response,
    }


def decode_line(raw: bytes, kind: Any) -> Any:
    """Decode a line of a body of a declared type; raise 422 with the place of what is wrong."""
    return decode_json(raw, _decoders[kind].decode)


def read_query(request: Request, kind: Any) -> Any:
    """Read the query parameters as `kind`; raise 422 naming the parameter that is wrong."""
    if kind is NoQuery and not request.scope["query_string"]:
        return _NO_QUERY
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    lists = _list_parameters(kind)
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if name not in lists and len(texts) > 1:
            raise Problem("invalid-request", f"the parameter {name[:80]} is given more than once")
        values[name] = texts if name in lists else texts[0]
    with decode_errors():
        query = msgspec.convert(values, kind, strict=False)
    for name, value in values.items():  # not strict, msgspec reads "null" as null and numbers as instants
        read = getattr(query, name)
        if read is None:
            raise Problem("invalid-request", f"the parameter {name} cannot be null; leave it out")
        if isinstance(read, datetime) and ":" not in value:
            raise Problem("invalid-request", f"the parameter {name} must be an instant in ISO 8601")
    return query


@cache
def _list_parameters(kind: Any) -> frozenset[str]:
    """Return the parameters that may be given more than once."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return frozenset(
        field.encode_name for field in info.fields if isinstance(field.type, msgspec.inspect.ListType)
    )


_NO_QUERY = NoQuery()
_decoders: dict[Any, Any] = {}
_encoder = msgspec.json.Encoder()
