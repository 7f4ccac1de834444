"""The seam over HTTP: what workers, keepers and operators ask of a store from afar. (I2)

POST /store/{verb} takes a request of `_store.messages` as JSON; the key needs the request's scope.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..._model.alert import Alert
from ..._model.filter import By
from ..._model.key import ApiKey, Scope
from ..._model.limit import Limit
from ..._model.record import KINDS
from ..._model.schedule import Schedule
from ..._store.json_codec import Decoder, encode, wire_type
from ..._store.messages import REQUESTS, ApplyRequest, PruneRequest, PutRequest, RemoveRequest
from ..._store.messages import Request as StoreRequest
from ...errors import StoreError
from ..auth import Caller
from ..service import Service
from ..store_messages import check
from ..wake_stream import Hints
from ..web.body import body_of, understood
from ..web.duplicate_names import refuse_repeats
from ..web.ndjson import NDJSON
from ..web.problems import Problem

PING_SECONDS = 10.0
_MAX_WHO = 200
_SET_BY_PEOPLE = ("queue", *(KINDS[kind] for kind in (ApiKey, Limit, Schedule, Alert)))
_KEYS = KINDS[ApiKey]
_decoders = {verb: Decoder[StoreRequest[Any]](kind) for verb, kind in REQUESTS.items()}


async def ask(service: Service, caller: Caller, request: Request) -> Response:
    """Ask the store a verb."""
    name = request.path_params["verb"]
    kind = REQUESTS.get(name)
    if kind is None:
        raise Problem(404, "not-found", f"there is no verb of that name; there are: {', '.join(REQUESTS)}")
    caller.needs(kind.scope)
    caller.needs_no_bounds()
    body = await body_of(request)
    with understood():
        asked = _decoders[name].decode(body or b"{}")
        refuse_repeats(body, wire_type(kind))
        if getattr(asked, "kind", None) == _KEYS:
            caller.needs(Scope.ADMIN)
        check(asked)
    if caller.key is not None:
        asked = signed(asked, caller.name)
    answer = await asked.call(service.store)
    return Response(encode(answer), media_type="application/json")


def signed(asked: Any, who: str) -> Any:
    """What is asked, put down to the key in the audit log: whom the client names, it only says.

    A change to what people set is put down even if the client names nobody. What programs and keepers keep
    for themselves is not audited at all.
    """
    match asked:
        case ApplyRequest(action=action):
            return replace(asked, action=replace(action, by=_on_behalf(who, action.by)))
        case PutRequest() | RemoveRequest():
            by = _on_behalf(who, asked.by) if asked.kind in _SET_BY_PEOPLE else None
            return replace(asked, by=by)
        case PruneRequest(by=By() as by):
            return replace(asked, by=_on_behalf(who, by))
        case _:
            return asked


def _on_behalf(key: str, said: By | None) -> By:
    if said is None:
        return By(who=key)
    return By(who=f"{key} for {said.who[:_MAX_WHO]}", why=said.why)


async def wakes(service: Service, caller: Caller, request: Request) -> Response:
    """Hints, a line each, for as long as the caller listens; an empty line now and then says that we do."""
    caller.needs(Scope.WORK)
    caller.needs_no_bounds()
    queues = request.query_params.getlist("queue")
    check(queues)
    lines = _lines(service, queues, request.scope["still_welcome"])
    return StreamingResponse(lines, media_type=NDJSON)


async def _lines(
    service: Service, queues: list[str], still_welcome: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    """The lines. A key that is taken back meanwhile hears no more."""
    yield b"\n"
    with Hints(service, queues) as hints:
        try:
            while not service.closing.is_set():
                wake = await hints.next(PING_SECONDS)
                await still_welcome()
                yield b"\n" if wake is None else encode(wake) + b"\n"
        except (Problem, StoreError, StopAsyncIteration):
            return  # The answer has begun: it can only end. Who asks again is told why.
