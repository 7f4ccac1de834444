"""The HTTP API as an ASGI app: `windlass serve` runs it, and another app can mount it."""

import logging
from collections.abc import Iterable
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from ..app import App
from ..errors import WindlassError
from .auth import ANONYMOUS, Authenticator
from .bounds.rate_limit import Buckets
from .docs import page as docs_page
from .operation import Operation
from .resources import store
from .resources.alerts import alerts
from .resources.audit import audit
from .resources.endpoints import endpoints
from .resources.enqueue import enqueues
from .resources.events import events
from .resources.export import archive, export
from .resources.health import checks, health, metrics
from .resources.history import histories
from .resources.keys import keys
from .resources.limits import limits
from .resources.queues import queues
from .resources.quotas import quotas
from .resources.schedules import schedules
from .resources.task_types import types
from .resources.tasks import dead, tasks
from .resources.work import work, workers
from .service import Service
from .web.cors import with_cors
from .web.load import Held, LoadLimits
from .web.problems import SAFE_HEADERS, Problem, problem_for, problem_response
from .web.refusal import Refusal
from .web.router import Route, Router

logger = logging.getLogger("windlass.http")

OPERATIONS: tuple[Operation, ...] = (
    *enqueues.all,
    *tasks.all,
    *dead.all,
    *export.all,
    *archive.all,
    *queues.all,
    *limits.all,
    *quotas.all,
    *endpoints.all,
    *schedules.all,
    *alerts.all,
    *types.all,
    *workers.all,
    *audit.all,
    *keys.all,
    *events.all,
    *histories.all,
    *metrics.all,
    *checks.all,
    *work.all,
    *health.all,
)
"""All public operations. The private protocol of `_stores/http` at /store is not among them."""

_URGENT_VERBS = ("heartbeat", "settle")

URGENT_PATHS = (
    *(one.path for one in OPERATIONS if one.urgent),
    *(f"/store/{verb}" for verb in _URGENT_VERBS),
)
"""Requests to these are served however busy the server is."""

_SAFE = [(name.encode(), value.encode()) for name, value in SAFE_HEADERS.items()]


class Api:
    """The API over an app.

    `open_to_all` requires no keys; `open_until_keys` requires none until the first one is created, from
    programs on this machine. Pages from `origins` may call it from a browser. `limits` bound the
    requests in progress. `buckets`: where the rates of keys are counted, if not here.
    """

    def __init__(
        self,
        app: App,
        *,
        open_to_all: bool = False,
        open_until_keys: bool = False,
        origins: Iterable[str] = (),
        limits: LoadLimits | None = None,
        buckets: Buckets | None = None,
    ) -> None:
        allowed = tuple(origins)
        authenticator = Authenticator(
            app.store, open_to_all=open_to_all, open_until_keys=open_until_keys, origins=allowed
        )
        self.service = Service(app, authenticator, OPERATIONS, limits, buckets)
        self._router = _router()
        self._respond = with_cors(self._send_response, allowed)

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Respond to a request; every failure becomes a problem document."""
        if connection["type"] != "http":
            raise RuntimeError(f"the windlass API supports only HTTP, not {connection['type']}")
        await self._respond(connection, receive, send)

    async def _send_response(self, connection: Connection, receive: Receive, send: Send) -> None:
        held = connection["windlass.held"] = Held(self.service.load)
        try:
            response = await self._response(Request(connection, receive), held)
            held.release_body()
            named = {name for name, _ in response.raw_headers}
            response.raw_headers.extend(one for one in _SAFE if one[0] not in named)
            await response(connection, receive, send)
        finally:
            held.release()

    async def _response(self, request: Request, held: Held) -> Response:
        path, caller = "", ANONYMOUS
        try:
            route, request.scope["path_params"] = self._router.find(request.scope)
            path, service = route.path, self.service
            if route.requires_key:
                caller = await service.authenticator.authenticate(request)
                held.begin(caller.key_name, urgent=route.urgent)
                service = service.seen_by(caller)
            service.rate_limiter.take_request(caller.key)
            response = await route.handler(service, caller, request)
            if caller.key is not None and (rates := service.rate_limiter.headers(caller.key)):
                response.headers.update(rates)
            return without_body(response) if request.method == "HEAD" else response
        except Refusal as refusal:
            key_id = refusal.key_id or (caller.key.name if caller.key else "")
            self.service.refusals.add(refusal, request, path, key_id)
            return problem_response(refusal)
        except (Problem, WindlassError) as error:
            return problem_response(problem_for(error, request))
        except ClientDisconnect:
            return problem_response(Problem("incomplete", "the connection closed within the body"))
        except Exception as error:
            logger.exception("%s %s failed: %s", request.method, request.url.path, type(error).__name__)
            return problem_response(Problem("internal", "internal error; see the server's log"))


def without_body(response: Response) -> Response:
    """Answer HEAD on a stream with its headers only; the stream itself would never end."""
    if isinstance(response, StreamingResponse):
        return Response(None, response.status_code, {**response.headers, "content-length": "0"})
    return response


def _router() -> Router:
    paths: dict[str, dict[str, Route]] = {
        docs_page.style_path(): {"GET": Route(docs_page.style, "/docs/{style}", requires_key=False)},
        "/store/wakes": {"POST": Route(store.wakes, "/store/wakes")},
        "/store/{verb}": {"POST": Route(store.call_verb, "/store/{verb}")},
    }
    for verb in _URGENT_VERBS:
        handler = partial(store.call_verb, verb=verb)
        paths[f"/store/{verb}"] = {"POST": Route(handler, "/store/{verb}", urgent=True)}
    for one in OPERATIONS:
        route = Route(one.respond, one.path, requires_key=one.scope is not None, urgent=one.urgent)
        paths.setdefault(one.path, {})[one.method] = route
    return Router(paths)
