"""The seam over HTTP: what workers, keepers and operators ask of a store from afar. (I2)

POST /work/{verb} takes a message of `_verbs` as JSON. The scope that it takes is the verb's.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .._model.key import ApiKey, Scope
from .._model.record import KINDS
from .._store import Store, Wake
from .._verbs import VERBS
from .._wire import Decoder, encode
from ..errors import StoreError
from .access import Caller
from .checking import check
from .problems import Problem
from .receiving import body_of

SCOPES: dict[str, Scope] = {
    "about": Scope.READ,
    "enqueue": Scope.ENQUEUE,
    "claim": Scope.WORK,
    "settle": Scope.WORK,
    "heartbeat": Scope.WORK,
    "once": Scope.WORK,
    "lead": Scope.WORK,
    "promote": Scope.WORK,
    "rescue": Scope.WORK,
    "prune": Scope.OPERATE,
    "find": Scope.READ,
    "count": Scope.READ,
    "attempts": Scope.READ,
    "apply": Scope.OPERATE,
    "put": Scope.OPERATE,
    "records": Scope.READ,
    "remove": Scope.OPERATE,
    "check": Scope.READ,
}

PING_SECONDS = 10.0
_KEYS = KINDS[ApiKey]
_decoders = {name: Decoder[object](verb.asked) for name, verb in VERBS.items()}
_endings: set[asyncio.Task[None]] = set()


async def work(store: Store, caller: Caller, request: Request) -> Response:
    """Ask the store a verb."""
    name = request.path_params["verb"]
    verb = VERBS.get(name)
    if verb is None:
        raise Problem(404, "not-found", f"there is no verb of that name; there are: {', '.join(VERBS)}")
    caller.needs(SCOPES[name])
    caller.needs_no_bounds()
    body = await body_of(request)
    with _understood():
        asked = _decoders[name].decode(body or b"{}")
        if getattr(asked, "kind", None) == _KEYS:
            caller.needs(Scope.ADMIN)
        check(asked)
    answer = await verb.call(store, asked)
    return Response(encode(answer), media_type="application/json")


@contextmanager
def _understood() -> Iterator[None]:
    """What cannot be read is a problem of who sent it."""
    try:
        yield
    except msgspec.DecodeError as error:
        raise Problem(422, "invalid-request", str(error)) from None
    except RecursionError:
        raise Problem(422, "invalid-request", "the body is nested too deeply; flatten it") from None


async def wakes(store: Store, caller: Caller, request: Request) -> Response:
    """Hints, a line each, for as long as the caller listens; an empty line now and then says that we do."""
    caller.needs(Scope.WORK)
    caller.needs_no_bounds()
    queues = request.query_params.getlist("queue")
    check(queues)
    hints = _hints(store, queues, request.state.still_welcome)
    return StreamingResponse(hints, media_type="application/x-ndjson")


async def _hints(
    store: Store, queues: list[str], still_welcome: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """The lines. A key that is taken back meanwhile hears no more."""
    yield b"\n"
    hints = store.wakes(queues)
    following = asyncio.ensure_future(anext(hints))
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=PING_SECONDS)
            await still_welcome()
            if not done:
                yield b"\n"
                continue
            wake: Wake = following.result()
            following = asyncio.ensure_future(anext(hints))
            yield encode(wake) + b"\n"
    except (Problem, StoreError, StopAsyncIteration):
        return  # The answer has begun: it can only end. Who asks again is told why.
    finally:
        # Whoever cancels us cancels every wait in here as well: the end must not depend on it.
        ending = asyncio.ensure_future(_end(hints, following))
        _endings.add(ending)
        ending.add_done_callback(_endings.discard)


async def _end(hints: AsyncIterator[Wake], following: asyncio.Future[Wake]) -> None:
    following.cancel()
    await asyncio.wait([following])
    await hints.aclose()  # type: ignore[attr-defined]  # a generator in every store
