"""An operation of the API: what it takes, what it answers, who may ask it.

The routes and the OpenAPI document are both read off these, so that neither can say what the other does not.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from .._client.operator import Operator
from .._model.filter import By
from .._model.key import Scope
from .auth import Caller
from .service import Service
from .web.body import body_of, not_understood, understood
from .web.duplicate_names import refuse_repeats
from .web.mount import root_of
from .web.problems import Problem

Q = TypeVar("Q")
B = TypeVar("B")

JSON = "application/json"


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing can be asked for beyond the path."""


class Asked(Struct, Generic[Q, B], frozen=True, kw_only=True):
    """A request that has been let in and understood."""

    service: Service
    caller: Caller
    request: Request
    query: Q
    body: B
    raw: bytes = b""

    def path(self, name: str) -> str:
        """A part of the path."""
        part: str = self.request.path_params[name]
        return part

    async def still_welcome(self) -> None:
        """Refuse to go on if the key has been taken back meanwhile."""
        await self.request.scope["still_welcome"]()

    def location(self, task_id: str) -> dict[str, str]:
        """The header that says where a task is."""
        return {"Location": f"{root_of(self.request.scope)}/tasks/{task_id}"}

    def operator(self, why: str = "") -> Operator:
        """The operator as whom the caller acts: the audit log names it."""
        return self.service.app.operator.acting_as(self.by(why))

    def by(self, why: str = "") -> By:
        """Who acts, for the audit log."""
        return By(who=self.caller.name, why=why)


class Answer(Struct, frozen=True, kw_only=True):
    """What is answered where the value alone does not say it all."""

    value: Any = None
    status: int | None = None  # None: the operation's own
    headers: Mapping[str, str] = {}


Call: TypeAlias = Callable[[Any], Awaitable[Any]]


class Operation(Struct, frozen=True, kw_only=True):
    """One method at one path.

    Without a `scope` it takes no key. `bound`: keys that are bound to a tenant or queues may ask it, and it
    keeps within their bounds. `answers` are the statuses it may end in besides `status`; those of every
    operation are not repeated here.
    """

    method: str
    path: str
    call: Call
    group: str
    scope: Scope | None
    bound: bool = False
    query: Any = NoQuery
    body: Any = None
    takes: str = JSON  # the type of its body
    needs_body: bool = True
    answer: Any = None
    gives: str = JSON  # the type of its answer
    status: int = 200
    answers: tuple[int, ...] = ()
    hears: tuple[str, ...] = ()  # headers of the request that it heeds
    says: tuple[str, ...] = ()  # headers of its answer

    @property
    def name(self) -> str:
        """What programs that are made from the document call it."""
        return self.call.__name__.strip("_")

    @property
    def told(self) -> tuple[str, str]:
        """What it does: in a line, and the rest."""
        first, _, rest = (self.call.__doc__ or "").strip().partition("\n")
        return first, "\n".join(line.strip() for line in rest.strip().splitlines())

    async def answered(self, service: Service, caller: Caller, request: Request) -> Response:
        """Ask it."""
        if self.scope is not None:
            caller.needs(self.scope)
        if not self.bound:
            caller.needs_no_bounds()
        query = read_query(request, self.query)
        raw = b"" if self.body is None or self.takes != JSON else await self._received(request)
        body = self._read(raw)
        asked = Asked(service=service, caller=caller, request=request, query=query, body=body, raw=raw)
        answer = await self.call(asked)
        if isinstance(answer, Response):
            return answer
        said = answer if isinstance(answer, Answer) else Answer(value=answer)
        status = said.status or self.status
        content = b"" if status == 204 else _encoder.encode(said.value)
        return Response(content, status, dict(said.headers), media_type=None if status == 204 else self.gives)

    async def _received(self, request: Request) -> bytes:
        return await body_of(request, optional=not self.needs_body) or (b"" if self.needs_body else b"{}")

    def _read(self, raw: bytes) -> Any:
        if self.body is None or self.takes != JSON:
            return None
        try:
            body = _decoders[self.body].decode(raw)
            refuse_repeats(raw, self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise not_understood(error) from None
        return body


class Operations:
    """Operations of one group, as they are declared."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.all: list[Operation] = []

    def __call__(self, method: str, path: str, **said: Any) -> Callable[[Call], Call]:
        """Declare an operation: the function that is decorated answers it, and its docstring describes it."""

        def declare(call: Call) -> Call:
            one = Operation(method=method, path=path, call=call, group=self.group, **said)
            _several(one.query), one.body and _decoder(one.body)  # A type that cannot be read fails here.
            self.all.append(one)
            return call

        return declare


def read_query(request: Request, kind: Any) -> Any:
    """The query as its type; a Problem names the parameter that is wrong."""
    if kind is NoQuery and not request.scope["query_string"]:
        return _NOTHING
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    several = _several(kind)
    said: dict[str, Any] = {}
    for name, values in given.items():
        if name not in several and len(values) > 1:
            raise Problem(422, "invalid-request", f"the parameter {name[:80]} is given twice; say it once")
        said[name] = values if name in several else values[0]
    with understood():
        query = msgspec.convert(said, kind, strict=False)
    for name, value in said.items():  # To msgspec the text "null" is null, and a number may be an instant.
        read = getattr(query, name)
        if read is None:
            raise Problem(422, "invalid-request", f"the parameter {name} cannot be null; leave it out")
        if isinstance(read, datetime) and ":" not in value:
            raise Problem(422, "invalid-request", f"the parameter {name} is an instant in ISO 8601")
    return query


def _several(kind: Any) -> frozenset[str]:
    """The parameters that may be given more than once."""
    if kind not in _lists:
        info = msgspec.inspect.type_info(kind)
        assert isinstance(info, msgspec.inspect.StructType)
        _lists[kind] = frozenset(
            field.encode_name for field in info.fields if isinstance(field.type, msgspec.inspect.ListType)
        )
    return _lists[kind]


def _decoder(kind: Any) -> Any:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


_NOTHING = NoQuery()
_lists: dict[Any, frozenset[str]] = {}
_decoders: dict[Any, Any] = {}
_encoder = msgspec.json.Encoder()
