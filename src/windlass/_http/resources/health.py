"""The server itself: whether it lives, whether it can serve, and what can be asked of it. (I1, I4)

Anybody may ask these: they say nothing about tasks.
"""

import asyncio
from typing import Any, Literal

from msgspec import Struct
from starlette.responses import Response

from ..._documents.fields import Instant
from ..._model.filter import Page
from ..._model.queue import QueueSettings
from ..._model.record import Session
from ..._store.protocol import Durability, all_records
from ...errors import StoreError
from ..docs import openapi
from ..docs import page as reference
from ..operation import Asked, NoQuery, Operations
from ..web.problems import Problem

about = Operations("this server")

PATIENCE_SECONDS = 2.0


class Health(Struct, kw_only=True):
    """The process answers. `durability`: what an acknowledged write survives, and `why`."""

    status: Literal["ok"] = "ok"
    durability: Durability
    why: str


class Readiness(Struct, kw_only=True):
    """The store answers; `now` is its time. `keeper`: one leads, which fires schedules and rescues tasks."""

    status: Literal["ready"] = "ready"
    durability: Durability
    keeper: bool
    now: Instant


@about("GET", "/healthz", scope=None, bound=True, answer=Health)
async def healthz(asked: Asked[NoQuery, None]) -> Health:
    """Ask whether the process lives, and what its store promises."""
    promise = asked.service.store.promise
    return Health(durability=promise.durability, why=promise.why)


@about("GET", "/readyz", scope=None, bound=True, answer=Readiness)
async def readyz(asked: Asked[NoQuery, None]) -> Readiness:
    """Ask whether it can serve: the store answers, and its schema is the one that this code knows.

    Whether a keeper leads is said, and is no reason not to be ready: what is handed in is kept all the same.
    """
    store = asked.service.store
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.open()
            await store.records(QueueSettings, Page(limit=1))  # Some stores know the time without looking.
            now = await store.now()
            sessions = await all_records(store, Session)
    except (StoreError, TimeoutError) as error:  # What it says is not for strangers.
        code = error.code if isinstance(error, StoreError) else "store-unavailable"
        raise Problem(503, code, "the store cannot be used now; the server's log may say why") from None
    keeper = any(one.worker.keeper and one.expires_at > now for one in sessions)
    return Readiness(durability=store.promise.durability, keeper=keeper, now=now)


@about(
    "GET",
    "/openapi.json",
    scope=None,
    bound=True,
    answer=dict[str, Any],
    answers=(304,),
    hears=("If-None-Match",),
    says=("ETag",),
)
async def openapi_document(asked: Asked[NoQuery, None]) -> Response:
    """Get this document: OpenAPI 3.1."""
    return openapi.response(asked.service.operations, asked.request)


@about(
    "GET",
    "/docs",
    scope=None,
    bound=True,
    answer=str,
    gives="text/html",
    answers=(304,),
    hears=("If-None-Match",),
    says=("ETag",),
)
async def docs_page(asked: Asked[NoQuery, None]) -> Response:
    """Read this document as a page, which needs nothing from elsewhere."""
    return reference.response(asked.service.operations, asked.request)
