"""The API as an ASGI app: `windlass serve` runs it, and another app may mount it."""

import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from .._store import Store
from ..errors import WindlassError
from . import health, work
from .access import Caller, Doorkeeper
from .problems import SAFE_HEADERS, Problem, answer, problem_of

logger = logging.getLogger("windlass.http")

Handler = Callable[[Store, Caller, Request], Awaitable[Response]]


def http_app(store: Store, *, open_to_all: bool = False, open_until_keys: bool = False) -> Starlette:
    """The API over a store. `open_to_all` asks nobody for a key; `open_until_keys`, while there are none."""
    door = Doorkeeper(store, open_to_all=open_to_all, open_until_keys=open_until_keys)

    def guarded(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return await _answered(store, door, handler, request)

        return handle

    routes = [
        Route("/healthz", health.endpoint(store, health.healthz), methods=["GET"]),
        Route("/readyz", health.endpoint(store, health.readyz), methods=["GET"]),
        Route("/work/wakes", guarded(work.wakes), methods=["GET"]),
        Route("/work/{verb}", guarded(work.work), methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})
    app.add_middleware(SafeHeaders)
    return app


async def _answered(store: Store, door: Doorkeeper, handler: Handler, request: Request) -> Response:
    async def still_welcome() -> None:
        await door.caller(request)

    request.state.still_welcome = still_welcome  # for an answer that goes on and on
    try:
        caller = await door.caller(request)
        return await handler(store, caller, request)
    except Problem as problem:
        return answer(problem)
    except WindlassError as error:
        return answer(problem_of(error))
    except ClientDisconnect:  # Nobody is left to read it.
        return answer(Problem(400, "incomplete", "the request ended before its body did"))
    except Exception as error:  # noqa: BLE001  the answer is a problem, and the log says which
        return await _failed(request, error)


async def _refused(_: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    assert isinstance(error, HTTPException)
    codes = {404: "not-found", 405: "method-not-allowed"}
    detail = "there is nothing at this address" if error.status_code == 404 else error.detail
    problem = Problem(error.status_code, codes.get(error.status_code, "refused"), detail)
    return answer(problem, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed: %s", request.method, request.url.path, type(error).__name__, exc_info=error)
    return answer(Problem(500, "internal", "the server failed; its log says more"), SAFE_HEADERS)


class SafeHeaders:
    """Headers that keep a browser from making more of an answer than it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Pass everything on, and add the headers to the answer."""

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in SAFE_HEADERS.items() if n.encode() not in named]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(connection, receive, safely)
