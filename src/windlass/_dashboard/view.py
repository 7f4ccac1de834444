"""A view: one request for a page or an action, and what its screen may do: call operations of the API.

A screen calls operations as an HTTP client would, without the HTTP: the scopes and bounds of the caller's key
apply, secrets are masked, and what changes is audited.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias, TypeVar, overload
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.requests import Request

from .._http.app import OPERATIONS
from .._http.auth import Caller
from .._http.operation import ApiRequest, ApiResponse, Operation
from .._http.service import Service
from .._http.web.body import decode_errors
from .._model.brief import Brief
from .._model.key import Role, Scope

T = TypeVar("T")
Given: TypeAlias = Mapping[str, Any] | None

SOON = 0.1
"""Seconds that a page waits for what it can do without."""

MAX_TEXT = 2_000
"""Characters of a query parameter that are read."""

MAX_FIELDS = 2_000
"""Fields of a form."""

_OPERATIONS: dict[Any, Operation] = {operation.handler: operation for operation in OPERATIONS}


class DashboardSettings(Struct, frozen=True, kw_only=True):
    """How a dashboard is served. `trace_url`: where a trace is shown, with `{trace}` for its id.

    `trusted_proxies`: addresses or networks of proxies, whose X-Forwarded-For is believed. `user_header`: the
    header in which they name people whom they have authenticated; these have the role `proxy_role`.
    """

    read_only: bool = False
    trace_url: str = ""
    user_header: str = ""
    trusted_proxies: tuple[str, ...] = ()
    proxy_role: Role = Role.READ


class View(Brief, Struct, frozen=True, kw_only=True):
    """A request for a page, by a caller who is known."""

    service: Service
    caller: Caller
    http: Request
    settings: DashboardSettings
    form: Mapping[str, tuple[str, ...]] = {}  # what an action was sent, by field

    def path(self, name: str) -> str:
        """Return a path parameter."""
        parameter: str = self.http.path_params[name]
        return parameter

    def query(self, name: str, default: str = "") -> str:
        """Return a query parameter; the first, if there are several."""
        return next(iter(self.queries(name)), default)

    def queries(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        return [text[:MAX_TEXT] for text in self.http.query_params.getlist(name)]

    def field(self, name: str, default: str = "") -> str:
        """Return a field of the form, without white space around it."""
        return self.form.get(name, (default,))[0].strip()

    def may(self, scope: str) -> bool:
        """Tell whether the caller may do what needs this scope here. In a read-only dashboard: only read."""
        wanted = Scope(scope)
        return self.caller.has_scope(wanted) and (wanted is Scope.READ or not self.settings.read_only)

    def may_call(self, handler: Callable[..., Any]) -> bool:
        """Tell whether the caller may use an operation, whatever it is used on."""
        operation = _OPERATIONS[handler]
        allowed = operation.scope is None or self.may(operation.scope)
        return allowed and (operation.bound or not self.caller.is_bound)

    @overload
    async def call(
        self,
        handler: Callable[[Any], Awaitable[ApiResponse[T]]],
        *,
        query: Given = ...,
        body: Given = ...,
        headers: Given = ...,
        **path: str,
    ) -> T: ...

    @overload
    async def call(
        self,
        handler: Callable[[Any], Awaitable[T]],
        *,
        query: Given = ...,
        body: Given = ...,
        headers: Given = ...,
        **path: str,
    ) -> T: ...

    async def call(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        *,
        query: Given = None,
        body: Given = None,
        headers: Given = None,
        **path: str,
    ) -> Any:
        """Call an operation of the API with these parameters; return its document.

        Raises the problems that it would respond with. Values of JSON go into the body as `msgspec.Raw`.
        `headers` are sent besides those of the browser.
        """
        operation = _OPERATIONS[handler]
        operation.authorise(self.caller)
        with decode_errors():
            asked = msgspec.convert(query or {}, operation.query, strict=False)
            sent = None if operation.body is None else operation.decode(msgspec.json.encode(body or {}))
        own = [(name.encode(), text.encode()) for name, text in (headers or {}).items()]
        scope = {**self.http.scope, "path_params": path, "headers": [*self.http.scope["headers"], *own]}
        request: ApiRequest[Any, Any] = ApiRequest(
            service=self.service,
            caller=self.caller,
            http=Request(scope, self.http.receive),
            query=asked,
            body=sent,
        )
        result: Any = await handler(request)
        return result.value if isinstance(result, ApiResponse) else result

    async def soon(self, call: Coroutine[Any, Any, T]) -> T | None:
        """Return what a call returns if that is soon; else None, and the page shows it when it updates.

        It is for reads that the server caches, such as counts: the read goes on, for the next who asks.
        """
        calling = asyncio.ensure_future(call)
        done, _ = await asyncio.wait({calling}, timeout=SOON)
        if done:
            return calling.result()
        calling.cancel()
        return None

    @property
    def why(self) -> str:
        """The reason that was given in the form."""
        return self.field("why")


def parse_form(body: bytes) -> dict[str, tuple[str, ...]]:
    """Parse the body of a form; raises ValueError if it has too many fields."""
    fields: dict[str, tuple[str, ...]] = {}
    text = body.decode("utf-8", "replace")
    for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS):
        fields[name] = (*fields.get(name, ()), value)
    return fields
