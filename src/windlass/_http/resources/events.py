"""What happens, as it happens: server-sent events for live views. (O5)"""

from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import StreamingResponse

from ..._documents.queues import OverviewDocument, overview_document
from ..._documents.tasks import TaskDocument, task_document
from ..._model.filter import Filter
from ..._model.key import Scope
from ..._model.state import ENDED
from ..._observe.overview import Overview
from ..._timers import wait_for_event
from ...errors import WindlassError
from ..operation import Asked, NoQuery, Operations
from ..task_query import the_task
from ..web.problems import Problem

events = Operations("live")

EVENT_STREAM = "text/event-stream"
LOOK_SECONDS = 1.0
PING_SECONDS = 10.0


@events("GET", "/overview", scope=Scope.READ, bound=True, answer=OverviewDocument)
async def get_overview(asked: Asked[NoQuery, None]) -> OverviewDocument:
    """Show how things stand: every queue, how many work, how busy they are. A few seconds old at most."""
    return _document(asked, await _overview(asked))


@events("GET", "/events", scope=Scope.READ, bound=True, answer=OverviewDocument, gives=EVENT_STREAM)
async def watch_overview(asked: Asked[NoQuery, None]) -> StreamingResponse:
    """Watch how things stand: an event `overview` now, and whenever that has changed."""
    closing, live = asked.service.closing, _Live(asked)
    await live.look()  # A store that is away can be told as a problem only before the answer begins.
    return _stream(_told(asked, "overview", live.look, lambda: wait_for_event(closing, LOOK_SECONDS)))


@events(
    "GET",
    "/tasks/{id}/events",
    scope=Scope.READ,
    bound=True,
    answer=TaskDocument,
    gives=EVENT_STREAM,
    answers=(404,),
)
async def watch_task(asked: Asked[NoQuery, None]) -> StreamingResponse:
    """Watch a task: an event `task` now and whenever it has changed, until it has ended."""
    task = await the_task(asked)
    watch, closing = asked.service.watch, asked.service.closing

    async def look() -> TaskDocument:
        return task_document(await the_task(asked), asked.caller.may_see)

    return _stream(
        _told(
            asked,
            "task",
            look,
            lambda: watch.ended(task.id, LOOK_SECONDS, closing),
            is_last=lambda seen: seen.state in ENDED,
        )
    )


async def _told(
    asked: Asked[Any, Any],
    name: str,
    look: Callable[[], Awaitable[Any]],
    pause: Callable[[], Awaitable[Any]],
    *,
    is_last: Callable[[Any], bool] = lambda _: False,
) -> AsyncIterator[bytes]:
    """An event for whatever has changed. A key that is taken back meanwhile hears no more."""
    told, quiet_since = None, monotonic()
    try:
        while not asked.service.closing.is_set():
            if (seen := await look()) != told:
                told, quiet_since = seen, monotonic()
                yield b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(seen))
            elif monotonic() - quiet_since >= PING_SECONDS:
                quiet_since = monotonic()
                yield b": still here\n\n"
            if is_last(seen):
                return
            await pause()
            await asked.still_welcome()
    except (Problem, WindlassError):
        return  # The answer has begun: it can only end. Who asks again is told why.


def _stream(lines: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(lines, media_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"})


class _Live:
    """How things stand, for one who watches: the same document for as long as only time has passed."""

    def __init__(self, asked: Asked[Any, Any]) -> None:
        self._asked = asked
        self._overview: Overview | None = None
        self._shown: OverviewDocument | None = None

    async def look(self) -> OverviewDocument:
        overview = await _overview(self._asked)
        if self._shown is None or overview is not self._overview:
            self._overview, seen = overview, _document(self._asked, overview)
            if self._shown is None or replace(seen, at=self._shown.at) != self._shown:
                self._shown = seen
        return self._shown


async def _overview(asked: Asked[Any, Any]) -> Overview:
    """What there is for the caller: looked up once for all who ask for the same."""
    return await asked.service.overviews.get(asked.caller.sees(Filter()))


def _document(asked: Asked[Any, Any], overview: Overview) -> OverviewDocument:
    caller = asked.caller
    return overview_document(overview, with_workers=not caller.is_bound, with_settings=caller.tenant is None)
