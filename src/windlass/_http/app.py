"""The API as an ASGI app: `windlass serve` runs it, and another app may mount it."""

import logging
from collections.abc import Awaitable, Callable, Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from ..app import App
from ..errors import WindlassError
from . import reference, remote
from .access import Caller, Doorkeeper
from .operation import Operation
from .origins import let_in
from .problems import SAFE_HEADERS, Problem, answer, problem_of
from .resources.about import about
from .resources.dead import dead
from .resources.enqueue import enqueueing
from .resources.events import events
from .resources.limits import limits
from .resources.people import people
from .resources.queues import queues
from .resources.schedules import schedules
from .resources.tasks import tasks
from .resources.work import work
from .service import Service

logger = logging.getLogger("windlass.http")

_DETAILS = {404: "there is nothing at this address", 405: "this address does not know that method"}

_METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]
"""Plain paths take them all, if only to refuse: `DELETE /dead/replay` is not about a dead letter `replay`."""

OPERATIONS: tuple[Operation, ...] = (
    *enqueueing.all,
    *tasks.all,
    *dead.all,
    *queues.all,
    *limits.all,
    *schedules.all,
    *people.all,
    *events.all,
    *work.all,
    *about.all,
)
"""Everything that programs and people can ask, beside the store's own verbs."""

Handler = Callable[[Service, Caller, Request], Awaitable[Response]]


def http_app(
    app: App, *, open_to_all: bool = False, open_until_keys: bool = False, origins: Iterable[str] = ()
) -> Starlette:
    """The API over an app. `open_to_all` asks nobody for a key; `open_until_keys`, while there are none.

    Pages of `origins` may use it from a browser.
    """
    service = Service(app, OPERATIONS)
    store = app.store
    door = Doorkeeper(store, open_to_all=open_to_all, open_until_keys=open_until_keys)

    def guarded(handler: Handler, *, takes_key: bool = True) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return await _answered(service, door if takes_key else None, handler, request)

        return handle

    routes = [
        Route("/docs/style.css", reference.stylesheet, methods=["GET"]),
        Route("/store/wakes", guarded(remote.wakes), methods=["GET"]),
        Route("/store/{verb}", guarded(remote.ask), methods=["POST"]),
        *_routes(OPERATIONS, guarded),
    ]
    served = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})
    served.router.redirect_slashes = False  # To where, whoever asks would say himself: by the Host he names.
    let_in(served, origins)
    served.add_middleware(SafeHeaders)
    served.state.service = service
    return served


def _routes(
    operations: Iterable[Operation], guarded: Callable[..., Callable[[Request], Awaitable[Response]]]
) -> list[Route]:
    """A route for each path, plain ones first: `/tasks/batch` is no task."""
    paths: dict[str, dict[str, Operation]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method] = one

    def at(path: str) -> Route:
        methods = paths[path]

        async def chosen(service: Service, caller: Caller, request: Request) -> Response:
            operation = methods["GET" if request.method == "HEAD" else request.method]
            return await operation.answered(service, caller, request)

        known = {*methods, *(["HEAD"] if "GET" in methods else [])}
        handle = guarded(chosen, takes_key=any(one.scope is not None for one in methods.values()))

        async def allowed(request: Request) -> Response:
            if request.method not in known:
                raise HTTPException(405, headers={"Allow": ", ".join(sorted(known))})
            return await handle(request)

        return Route(_matched(path), allowed, methods=[*known] if "{" in path else _METHODS)

    return [at(path) for path in sorted(paths, key=lambda path: ("{" in path, -path.count("/"), path))]


def _matched(path: str) -> str:
    """The path as the router takes it: names may hold slashes, ids do not."""
    return path.replace("{name}", "{name:path}").replace("{queue}", "{queue:path}")


async def _answered(
    service: Service, door: Doorkeeper | None, handler: Handler, request: Request
) -> Response:
    async def caller() -> Caller:
        return Caller() if door is None else await door.caller(request)

    request.state.still_welcome = caller  # for an answer that goes on and on
    try:
        asking = await caller()
        paced = {} if door is None else door.pacing.take(asking.key)
        response = await handler(service, asking, request)
        response.headers.update(paced)
        return response
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
    detail = _DETAILS.get(error.status_code, error.detail)
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
