"""Whether the server lives, and whether it can serve. (I4)"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .._model.filter import Page
from .._model.queue import QueueSettings
from .._model.record import Session
from .._store import Store, all_records
from ..errors import StoreError

PATIENCE_SECONDS = 2.0


def endpoint(
    store: Store, look: Callable[[Store], Awaitable[tuple[bool, dict[str, object]]]]
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that anybody may ask: it says nothing about tasks."""

    async def asked(_: Request) -> Response:
        good, body = await look(store)
        headers = {} if good else {"Retry-After": "1"}
        status = 200 if good else 503
        return Response(msgspec.json.encode(body), status, headers, media_type="application/json")

    return asked


async def healthz(store: Store) -> tuple[bool, dict[str, object]]:
    """The process answers; and what its store promises."""
    return True, {"status": "ok", "durability": store.promise.durability, "why": store.promise.why}


async def readyz(store: Store) -> tuple[bool, dict[str, object]]:
    """The store answers, and its schema is the one that this code knows.

    Whether a keeper leads is said, and is no reason not to be ready: what is handed in is kept all the same.
    """
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.open()
            await store.records(QueueSettings, Page(limit=1))  # Some stores know the time without looking.
            now = await store.now()
            sessions = await all_records(store, Session)
    except (StoreError, TimeoutError) as error:
        code = getattr(error, "code", "store-unavailable")
        return False, {"status": "unavailable", "code": code}
    keeper = any(one.is_keeper and one.expires_at > now for one in sessions)
    return True, {"status": "ready", "durability": store.promise.durability, "keeper": keeper, "now": now}
