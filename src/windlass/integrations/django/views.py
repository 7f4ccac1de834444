"""The HTTP API and the dashboard as a view, for users of Django: under ASGI and WSGI."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from functools import cache
from typing import Any, cast
from urllib.parse import quote

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import resolve_url
from django.utils.module_loading import import_string
from django.views.decorators.csrf import csrf_exempt
from starlette.requests import Request
from starlette.types import ASGIApp, Message

from ... import http
from ...http import Access
from . import app

_ACCESS = "windlass.access"
_DASHBOARD = "dashboard"
_STREAM_SECONDS = 60.0  # then the browser connects again, and the rights of its user are read anew


@csrf_exempt  # the dashboard has tokens of its own, and the API takes no cookies
def site(request: HttpRequest, path: str) -> Any:
    """Respond by the dashboard or the API. Users who may not see the dashboard are refused."""
    access = _access_of(request)
    is_dashboard = path.partition("/")[0] == _DASHBOARD
    if access is None and is_dashboard and getattr(request, "user", None) and request.user.is_authenticated:
        raise PermissionDenied("this user may not see the dashboard of windlass")
    is_async = hasattr(request, "scope")
    if not is_async and "text/event-stream" in request.headers.get("Accept", ""):
        return HttpResponse(
            status=204
        )  # it would occupy a thread of a WSGI server; browsers do not repeat it
    return Exchange(_scope(request, path) | {_ACCESS: access}, request.body).response(is_async=is_async)


def staff(request: HttpRequest) -> Access | None:
    """Allow staff to look and superusers to do everything. `WINDLASS["ACCESS"]` names another function."""
    user = getattr(request, "user", None)
    if user is None or not user.is_active or not user.is_staff:
        return None
    return Access(user.get_username()[:100], "admin" if user.is_superuser else "read")


def _access_of(request: HttpRequest) -> Access | None:
    path = app.settings.access
    access: Access | None = (staff if path is None else import_string(path))(request)
    return access


@cache
def _site() -> ASGIApp:
    return http.site(app, resolve=_resolve, sign_in=resolve_url(settings.LOGIN_URL))


async def _resolve(request: Request) -> Access | None:
    access: Access | None = request.scope[_ACCESS]
    return access


def _scope(request: HttpRequest, path: str) -> dict[str, Any]:
    """Return the ASGI scope of a request, with the prefix of these URLs as its root."""
    host = request.get_host()  # as Django sees it, behind proxies
    headers = {**request.headers, "Host": host}
    raw = getattr(request, "scope", {}).get("raw_path") or quote(request.path).encode()
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": raw,
        "root_path": request.path.removesuffix(path).rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": (request.META.get("REMOTE_ADDR") or "127.0.0.1", 0),
        "server": (host.rpartition(":")[0] or host, int(request.get_port())),
    }


class Exchange:
    """One request to the site, which runs on the event loop of the app, where its store is open."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self._scope = scope
        self._body: bytes | None = body
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._running: Future[None] = app.submit(self._run())

    def response(self, *, is_async: bool) -> Any:
        """Wait for the beginning of the response; what follows is streamed."""
        head, first = self._next().result(), self._next().result()
        if first.get("more_body"):
            content = self._rest_async(first) if is_async else self._rest(first)
            response: Any = StreamingHttpResponse(content, status=head["status"])
        else:
            response = HttpResponse(first.get("body", b""), status=head["status"])
        del response.headers["Content-Type"]
        for name, value in head["headers"]:
            if name.lower() == b"set-cookie":
                response.cookies.load(value.decode("latin-1"))
            else:
                response.headers[name.decode("latin-1")] = value.decode("latin-1")
        return response

    def _next(self) -> "Future[Message]":
        return app.submit(self._messages.get())

    def _rest(self, message: Message) -> Iterator[bytes]:
        try:
            yield message.get("body", b"")
            while message.get("more_body"):
                message = self._next().result()
                yield message.get("body", b"")
        finally:
            self._running.cancel()

    async def _rest_async(self, message: Message) -> AsyncIterator[bytes]:
        ends = time.monotonic() + _STREAM_SECONDS
        try:
            yield message.get("body", b"")
            while message.get("more_body"):
                async with asyncio.timeout(max(ends - time.monotonic(), 0) if self._is_live else None):
                    message = await asyncio.wrap_future(self._next())
                yield message.get("body", b"")
        except TimeoutError:
            return
        finally:
            self._running.cancel()

    @property
    def _is_live(self) -> bool:
        return any(
            name == b"accept" and b"text/event-stream" in value for name, value in self._scope["headers"]
        )

    async def _run(self) -> None:
        try:
            await _site()(self._scope, self._receive, self._messages.put)
        except Exception:
            await self._messages.put({"type": "http.response.start", "status": 500, "headers": []})
            await self._messages.put({"type": "http.response.body", "body": b""})
            raise

    async def _receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return cast("Message", await asyncio.get_running_loop().create_future())  # until it is cancelled
        return {"type": "http.request", "body": body, "more_body": False}
