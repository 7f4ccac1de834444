"""Queues: counts, pause and resume, settings."""

from datetime import timedelta
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._documents.fields import Seconds
from ..._documents.queues import QueueDocument, QueueList, RetentionDocument, queue_documents
from ..._model.filter import Filter
from ..._model.key import Scope
from ..._model.queue import MAX_STRIPES, MAX_WEIGHT, Fairness, Level, QueueSettings, Retention
from ..._policy.order.queue_options import QueueChanges
from ...errors import NotFound
from ..input_fields import Why
from ..operation import ApiRequest, NoQuery, Operations
from .tasks import ReasonQuery

queues = Operations("queues")

Weight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]
Share = Annotated[int, Meta(ge=1, le=99)]


class QueueChangesInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings to change; null resets one to its default, also within `weights` and `shares`."""

    paused: bool | UnsetType = UNSET
    fairness: Fairness | UnsetType | None = UNSET
    weights: Annotated[dict[str, Weight | None], Meta(max_length=10_000)] | UnsetType | None = UNSET
    shares: dict[Level, Share | None] | UnsetType | None = UNSET
    ageing: Seconds | UnsetType | None = UNSET
    retention: RetentionDocument | UnsetType | None = UNSET
    stripes: Annotated[int, Meta(ge=1, le=MAX_STRIPES)] | UnsetType | None = UNSET
    why: Why = ""


@queues("GET", "/queues", scope=Scope.READ, bound=True, response=QueueList)
async def list_queues(request: ApiRequest[NoQuery, None]) -> QueueList:
    """List queues, with the number of tasks in each state."""
    return QueueList(items=await _documents(request))


@queues("GET", "/queues/{queue}", scope=Scope.READ, bound=True, response=QueueDocument, statuses=(404,))
async def get_queue(request: ApiRequest[NoQuery, None]) -> QueueDocument:
    """Show a queue."""
    return await _show(request)


@queues(
    "PATCH",
    "/queues/{queue}",
    scope=Scope.OPERATE,
    bound=True,
    body=QueueChangesInput,
    response=QueueDocument,
    statuses=(404,),
)
async def set_queue(request: ApiRequest[NoQuery, QueueChangesInput]) -> QueueDocument:
    """Change settings of a queue. Omitted fields stay as they are. Programs notice within seconds."""
    body, queue = request.body, _controlled_queue(request)
    changes, paused = _changes(body), None if body.paused is UNSET else body.paused
    if changes or paused is not None:
        await request.operator(body.why).set_queue(queue, paused=paused, **changes)
    return await _show(request)


@queues(
    "POST",
    "/queues/{queue}/pause",
    scope=Scope.OPERATE,
    bound=True,
    query=ReasonQuery,
    response=QueueDocument,
    statuses=(404,),
)
async def pause_queue(request: ApiRequest[ReasonQuery, None]) -> QueueDocument:
    """Pause a queue: no task starts until it is resumed; running tasks continue."""
    await request.operator(request.query.why).pause(_controlled_queue(request))
    return await _show(request)


@queues(
    "POST",
    "/queues/{queue}/resume",
    scope=Scope.OPERATE,
    bound=True,
    query=ReasonQuery,
    response=QueueDocument,
    statuses=(404,),
)
async def resume_queue(request: ApiRequest[ReasonQuery, None]) -> QueueDocument:
    """Resume a queue."""
    await request.operator(request.query.why).resume(_controlled_queue(request))
    return await _show(request)


def _controlled_queue(request: ApiRequest[Any, Any]) -> str:
    """Return the queue in the path; raise 403 unless the key may change it."""
    queue = request.path("queue")
    request.caller.require_queue_control(queue)
    return queue


async def _show(request: ApiRequest[Any, Any]) -> QueueDocument:
    """Return the queue in the path, with cached counts and current settings."""
    queue = request.path("queue")
    for one in await _documents(request):
        if one.queue == queue:
            return one
    raise NotFound(f"there is no queue {queue[:200]!r}: it has no tasks, settings or workers")


async def _documents(request: ApiRequest[Any, Any]) -> list[QueueDocument]:
    overview = await request.service.overviews.get(request.caller.visible(Filter()))
    return queue_documents(
        overview,
        await _settings(request),
        with_workers=not request.caller.is_bound,
        with_settings=request.caller.tenant is None,
    )


async def _settings(request: ApiRequest[Any, Any]) -> list[QueueSettings]:
    visible = request.caller.queues
    found = await request.service.app.operator.queues()
    return [one for one in found if visible is None or one.name in visible]


def _changes(body: QueueChangesInput) -> QueueChanges:
    given: Any = {
        name: value for name in QueueChanges.__annotations__ if (value := getattr(body, name)) is not UNSET
    }
    if isinstance(body.retention, RetentionDocument):
        given["retention"] = _retention(body.retention)
    changes: QueueChanges = given
    return changes


def _retention(given: RetentionDocument) -> Retention:
    return Retention(
        completed=_duration(given.completed),
        cancelled=_duration(given.cancelled),
        dead=_duration(given.dead),
    )


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
