"""The store protocol over HTTP, for `_stores/http`: workers, keepers and operators elsewhere.

POST /store/{verb} takes a request of `_store.messages` as JSON; the key needs the request's scope.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..._model.key import ApiKey, Login, Scope
from ..._model.record import KINDS
from ..._store import messages
from ..._store.json_codec import Decoder, encode, encode_stored
from ...errors import StoreError
from ..auth import Caller
from ..bounds.leases import in_own_sessions
from ..long_poll import WakeListener
from ..page import size_of
from ..service import Service
from ..store_input import LARGE, attributed, check, read_enqueue
from ..store_secrets import with_declared_secrets, with_stored_secrets, without_secrets
from ..web.body import decode_body, decode_errors, read_body
from ..web.load import held_by
from ..web.ndjson import NDJSON
from ..web.off_loop import off_loop
from ..web.problems import Problem

PING_SECONDS = 10.0
_FOR_ADMINS = (KINDS[ApiKey], KINDS[Login])
_decoders = {verb: Decoder[messages.Request[Any]](kind) for verb, kind in messages.REQUESTS.items()}


class WakesInput(Struct, forbid_unknown_fields=True):
    """The queues to listen to; none for a keeper."""

    queues: tuple[str, ...] = ()


_wakes = Decoder[WakesInput](WakesInput)


async def call_verb(service: Service, caller: Caller, request: Request, verb: str = "") -> Response:
    """Run one verb of the store: the one in the path, unless the route has one of its own."""
    name = verb or request.path_params["verb"]
    kind = messages.REQUESTS.get(name)
    if kind is None:
        raise Problem("not-found", f"there is no such verb; the verbs are {', '.join(messages.REQUESTS)}")
    caller.require_scope(kind.scope, *kind.other_scopes)
    caller.require_unbound()
    body = await read_body(request, batch=True) or b"{}"
    message = await _read(service, caller, name, body)
    if isinstance(message, messages.EnqueueRequest):
        service.rate_limiter.take_work(caller.key, message.batch)
    message = await with_declared_secrets(service, message)
    if isinstance(message, messages.FindRequest) and message.where.ids is None:
        found: Any = await service.pages.read(partial(service.store.find, message.where), message.page)
        held_by(request).hold_response(sum(map(size_of, found.items)))
    else:  # by ids, a client wants all of them
        found = await service.leases.call(caller, message)
    response = await without_secrets(service, caller, message, found)
    size = len(body) if isinstance(message, messages.EnqueueRequest) else 0
    return Response(await off_loop(size, encode_stored, response), media_type="application/json")


async def _read(service: Service, caller: Caller, name: str, body: bytes) -> Any:
    """Decode a request and check it, as that of the caller. Raises what an operation raises for its body."""
    reserved = caller.has_scope(Scope.OPERATE)
    if messages.REQUESTS[name] is messages.EnqueueRequest and len(body) > LARGE:
        return await read_enqueue(body, caller, reserved=reserved)
    message = await decode_body(body, _decoders[name].decode)
    caller.require_scope(message.needed_scope)
    if getattr(message, "kind", None) in _FOR_ADMINS:
        caller.require_scope(Scope.ADMIN)
    message = attributed(await with_stored_secrets(service, caller, message), caller)
    message = in_own_sessions(caller, message)
    with decode_errors():
        await off_loop(len(body), check, message, reserved=reserved)
    return message


async def wakes(service: Service, caller: Caller, request: Request) -> Response:
    """Stream wakes, one JSON line each, until the client disconnects; empty lines are keep-alives.

    The queues are in the body: the names of thousands do not fit into a request head.
    """
    caller.require_scope(Scope.WORK)
    caller.require_unbound()
    body = await read_body(request, batch=True) or b"{}"
    wanted = await decode_body(body, _wakes.decode)
    with decode_errors():
        await off_loop(len(body), check, wanted)
    held_by(request).begin_stream(len(body))  # the names are kept as long as the stream lasts
    return StreamingResponse(_wake_lines(service, wanted.queues, request), media_type=NDJSON)


async def _wake_lines(service: Service, queues: Sequence[str], request: Request) -> AsyncIterator[bytes]:
    yield b"\n"
    with WakeListener(service.store, queues, service.closing) as listener:
        try:
            while not service.closing.is_set():
                wake = await listener.next(PING_SECONDS)
                await service.authenticator.authenticate(request)
                yield b"\n" if wake is None else encode(wake) + b"\n"
        except (Problem, StoreError, StopAsyncIteration):
            return  # the response has begun and can only end; the client learns why when it reconnects
