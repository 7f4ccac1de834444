"""The store protocol over HTTP, for `_stores/http`: workers, keepers and operators elsewhere.

POST /store/{verb} takes a request of `_store.messages` as JSON; the key needs the request's scope.
"""

from collections.abc import AsyncIterator
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
from ..._store.json_codec import Decoder, encode
from ..._store.messages import REQUESTS, ApplyRequest, PruneRequest, PutRequest, RemoveRequest
from ..._store.messages import Request as StoreRequest
from ...errors import StoreError
from ..auth import Caller
from ..long_poll import WakeListener
from ..service import Service
from ..store_messages import check
from ..web.body import decode_errors, read_body
from ..web.duplicate_names import refuse_duplicate_names
from ..web.ndjson import NDJSON
from ..web.problems import Problem

PING_SECONDS = 10.0
_MAX_WHO = 200
_SET_BY_PEOPLE = ("queue", *(KINDS[kind] for kind in (ApiKey, Limit, Schedule, Alert)))
_KEYS = KINDS[ApiKey]
_decoders = {verb: Decoder[StoreRequest[Any]](kind) for verb, kind in REQUESTS.items()}


async def call_verb(service: Service, caller: Caller, request: Request) -> Response:
    """Run one verb of the store."""
    name = request.path_params["verb"]
    kind = REQUESTS.get(name)
    if kind is None:
        raise Problem("not-found", f"there is no such verb; the verbs are {', '.join(REQUESTS)}")
    caller.require_scope(kind.scope)
    caller.require_unbound()
    body = await read_body(request)
    with decode_errors():
        message = _decoders[name].decode(body or b"{}")
    refuse_duplicate_names(body)
    if getattr(message, "kind", None) == _KEYS:
        caller.require_scope(Scope.ADMIN)
    with decode_errors():
        check(message)
    if caller.key is not None:
        message = attributed(message, caller.name)
    return Response(encode(await message.call(service.store)), media_type="application/json")


def attributed(message: Any, key: str) -> Any:
    """Attribute the request to the key in the audit log; the name that the client gives is only added.

    Changes to what people set are audited even if the client gives no name. Records that programs and keepers
    keep for themselves are not audited.
    """
    match message:
        case ApplyRequest(action=action):
            return replace(message, action=replace(action, by=_on_behalf(key, action.by)))
        case PutRequest() | RemoveRequest():
            by = _on_behalf(key, message.by) if message.kind in _SET_BY_PEOPLE else None
            return replace(message, by=by)
        case PruneRequest(by=By() as by):
            return replace(message, by=_on_behalf(key, by))
        case _:
            return message


def _on_behalf(key: str, by: By | None) -> By:
    if by is None:
        return By(who=key)
    return By(who=f"{key} for {by.who[:_MAX_WHO]}", why=by.why)


async def wakes(service: Service, caller: Caller, request: Request) -> Response:
    """Stream wakes, one JSON line each, until the client disconnects; empty lines are keep-alives."""
    caller.require_scope(Scope.WORK)
    caller.require_unbound()
    queues = request.query_params.getlist("queue")
    check(queues)
    return StreamingResponse(_wake_lines(service, queues, request), media_type=NDJSON)


async def _wake_lines(service: Service, queues: list[str], request: Request) -> AsyncIterator[bytes]:
    yield b"\n"
    with WakeListener(service.store, queues, service.closing) as listener:
        try:
            while not service.closing.is_set():
                wake = await listener.next(PING_SECONDS)
                await service.authenticator.authenticate(request)
                yield b"\n" if wake is None else encode(wake) + b"\n"
        except (Problem, StoreError, StopAsyncIteration):
            return  # the response has begun and can only end; the client learns why when it reconnects
