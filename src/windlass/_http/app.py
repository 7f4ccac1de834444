"""The API as an ASGI app: `windlass serve` runs it, and another app may mount it."""

import logging
from collections.abc import Iterable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from ..app import App
from ..errors import StoreError, WindlassError
from .auth import Caller, Doorkeeper
from .docs import page as reference
from .operation import Operation
from .resources import store as remote
from .resources.audit import audit
from .resources.dead import dead
from .resources.enqueue import enqueueing
from .resources.events import events
from .resources.health import about
from .resources.keys import keys
from .resources.limits import limits
from .resources.metrics import metrics
from .resources.queues import queues
from .resources.schedules import schedules
from .resources.tasks import tasks
from .resources.work import work
from .resources.workers import workers
from .service import Service
from .web.cors import letting_in
from .web.problems import SAFE_HEADERS, Problem, answer, hidden, problem_of
from .web.router import Routing, Target

logger = logging.getLogger("windlass.http")

OPERATIONS: tuple[Operation, ...] = (
    *enqueueing.all,
    *tasks.all,
    *dead.all,
    *queues.all,
    *limits.all,
    *schedules.all,
    *workers.all,
    *audit.all,
    *keys.all,
    *events.all,
    *metrics.all,
    *work.all,
    *about.all,
)
"""Everything that programs and people can ask, beside the store's own verbs."""

_SAFE = [(name.encode(), value.encode()) for name, value in SAFE_HEADERS.items()]


class Api:
    """The API over an app. `open_to_all` asks nobody for a key; `open_until_keys`, while there are none.

    Pages of `origins` may use it from a browser.
    """

    def __init__(
        self,
        app: App,
        *,
        open_to_all: bool = False,
        open_until_keys: bool = False,
        origins: Iterable[str] = (),
    ) -> None:
        self.service = Service(app, OPERATIONS)
        self._door = Doorkeeper(app.store, open_to_all=open_to_all, open_until_keys=open_until_keys)
        self._routing = _routing()
        self._asked = letting_in(self._answer, origins)

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Answer a request; whatever happens, by an answer."""
        if connection["type"] != "http":
            raise RuntimeError(f"this speaks HTTP, not {connection['type']}")
        await self._asked(connection, receive, send)

    async def _answer(self, connection: Connection, receive: Receive, send: Send) -> None:
        request = Request(connection, receive)
        response = await self._answered(request)
        named = {name for name, _ in response.raw_headers}
        response.raw_headers.extend(one for one in _SAFE if one[0] not in named)
        await response(connection, receive, send)

    async def _answered(self, request: Request) -> Response:
        try:
            target, request.scope["path_params"] = self._routing.find(request.scope)

            async def caller() -> Caller:
                return await self._door.caller(request) if target.takes_key else Caller()

            request.scope["still_welcome"] = caller  # for an answer that goes on and on
            asking = await caller()
            paced = self._door.pacing.take(asking.key)
            response = await target.handler(self.service, asking, request)
            if paced:
                response.headers.update(paced)
            return _head(response) if request.method == "HEAD" else response
        except Problem as problem:
            return answer(problem)
        except StoreError as error:  # Where the store is, and how it fares, is not for strangers.
            logger.warning("%s %s: %s", request.method, request.url.path, error)
            return answer(hidden(error))
        except WindlassError as error:
            return answer(problem_of(error))
        except ClientDisconnect:  # Nobody is left to read it.
            return answer(Problem(400, "incomplete", "the request ended before its body did"))
        except Exception as error:
            where = f"{request.method} {request.url.path}"
            logger.exception("%s failed: %s", where, type(error).__name__)
            return answer(Problem(500, "internal", "the server failed; its log says more"))


def _head(response: Response) -> Response:
    """The head of an answer. A stream would go on and on, with nobody to see it."""
    if isinstance(response, StreamingResponse):
        return Response(None, response.status_code, {**response.headers, "content-length": "0"})
    return response


def _routing() -> Routing:
    paths: dict[str, dict[str, Target]] = {
        "/docs/style.css": {"GET": Target(reference.stylesheet, takes_key=False)},
        "/store/wakes": {"GET": Target(remote.wakes)},
        "/store/{verb}": {"POST": Target(remote.ask)},
    }
    for one in OPERATIONS:
        target = Target(one.answered, takes_key=one.scope is not None)
        paths.setdefault(one.path, {})[one.method] = target
    return Routing(paths)
