"""Live views: the overview, and server-sent events."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import StreamingResponse

from ..._documents.queues import OverviewDocument, QueueView
from ..._documents.tasks import TaskDocument, task_document
from ..._model.filter import Filter
from ..._model.key import Scope
from ..._model.state import ENDED
from ..._observe.overview import Overview
from ..._timers import wait_for_event
from ...errors import WindlassError
from ..long_poll import task_ended
from ..operation import AnyRequest, ApiRequest, Operations
from ..page import size_of
from ..task_query import audit_reveal, shown_size, task_in_path
from ..web.off_loop import off_loop
from ..web.problems import Problem
from .tasks import ShowQuery

events = Operations("live")

EVENT_STREAM = "text/event-stream"
POLL_SECONDS = 1.0
PING_SECONDS = 10.0
QUEUE_BYTES = 64
"""Bytes that stand for the work on one depth of an overview, where `off_loop` asks for a size."""


@events("GET", "/overview", Scope.READ, bound=True)
async def get_overview(request: AnyRequest) -> OverviewDocument:
    """Show queues, workers and slots. At most a few seconds old."""
    return await _document(request, await visible_overview(request))


@events("GET", "/events", Scope.READ, bound=True, response=OverviewDocument, response_type=EVENT_STREAM)
async def watch_overview(request: AnyRequest) -> StreamingResponse:
    """Watch the overview: an event `overview` now and after each change."""
    request.begin_stream()
    closing = request.service.closing
    overview = await visible_overview(request)  # an error can be reported only before the response has begun
    document = await _document(request, overview)

    async def read() -> OverviewDocument:
        """Return the same document until something other than the time changes."""
        nonlocal overview, document
        if (latest := await visible_overview(request)) is not overview:
            overview, seen = latest, await _document(request, latest)
            if replace(seen, at=document.at) != document:
                document = seen
        return document

    return _stream(_events(request, "overview", read, lambda: wait_for_event(closing, POLL_SECONDS)))


@events(
    "GET", "/tasks/{id}/events", Scope.READ, bound=True, response=TaskDocument, response_type=EVENT_STREAM
)
async def watch_task(request: ApiRequest[ShowQuery, None]) -> StreamingResponse:
    """Watch a task: an event `task` now and after each change, until it has ended."""
    task, reveal = await task_in_path(request), request.query.reveal
    request.begin_stream(size_of(task))
    if reveal:
        await audit_reveal(request, [task.id])

    async def read() -> TaskDocument:
        task = await task_in_path(request)
        return await off_loop(shown_size(task), task_document, task, request.caller.may_see, reveal=reveal)

    service = request.service
    pause = partial(task_ended, service.store, task.id, POLL_SECONDS, service.closing)
    return _stream(_events(request, "task", read, pause, is_last=lambda seen: seen.state in ENDED))


async def _events(
    request: AnyRequest,
    name: str,
    read: Callable[[], Awaitable[Any]],
    pause: Callable[[], Awaitable[Any]],
    *,
    is_last: Callable[[Any], bool] = lambda _: False,
) -> AsyncIterator[bytes]:
    """Yield an event for each change, and comments as keep-alives; end if the key is revoked."""
    sent, quiet_since = None, monotonic()
    try:
        while not request.service.closing.is_set():
            if (seen := await read()) != sent:
                sent, quiet_since = seen, monotonic()
                yield b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(seen))
            elif monotonic() - quiet_since >= PING_SECONDS:
                quiet_since = monotonic()
                yield b": keep-alive\n\n"
            if is_last(seen):
                return
            await pause()
            await request.recheck_key()
    except (Problem, WindlassError):
        return  # the response has begun and can only end; the client learns why when it reconnects


def _stream(lines: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(lines, media_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"})


async def visible_overview(request: AnyRequest) -> Overview:
    """Return what the caller may see; callers with equal bounds share one query."""
    overview = await request.service.overviews.get(request.caller.visible(Filter()))
    if "by_queue" not in overview.__dict__:  # made here, once, and not in the loop if that takes long
        await off_loop(QUEUE_BYTES * len(overview.depths), getattr, overview, "by_queue")
    return overview


async def _document(request: AnyRequest, overview: Overview) -> OverviewDocument:
    """Return the document of an overview, which callers of the same kind share."""
    caller = request.caller
    kind = not caller.is_bound, caller.tenant is None
    if kind not in overview.documents:
        await off_loop(QUEUE_BYTES * len(overview.depths), _make_document, overview, *kind)
    document: OverviewDocument = overview.documents[kind]
    return document


def _make_document(overview: Overview, with_workers: bool, with_settings: bool) -> None:  # noqa: FBT001  passed on
    kind = with_workers, with_settings
    if kind not in overview.documents:  # meanwhile, for another request
        settings = {one.name: one for one in overview.settings}
        view = QueueView(
            overview=overview, settings=settings, with_workers=with_workers, with_settings=with_settings
        )
        overview.documents[kind] = view.overview_document()
