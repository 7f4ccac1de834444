"""Queues: counts, pause and resume, settings."""

from typing import Annotated, cast

from msgspec import UNSET, Meta, Struct, UnsetType, convert

from ..._documents.fields import Seconds
from ..._documents.queues import (
    MAX_QUEUES,
    QueueDocument,
    QueueList,
    QueueOrder,
    QueueSearch,
    QueueTenants,
    QueueTypes,
    QueueTypeView,
    QueueView,
    RetentionDocument,
    queue_tenants,
)
from ..._model.filter import Filter
from ..._model.key import Scope
from ..._model.queue import MAX_STRIPES, MAX_WEIGHT, MAX_WINDOWS, Fairness, Level, Retention
from ..._policy.order.queue_options import QueueChanges
from ...errors import NotFound
from ..input_fields import CreateFlag, CreateQuery, Why, given_fields
from ..operation import AnyRequest, ApiRequest, Operations
from ..task_query import Cursor
from ..web.off_loop import off_loop
from .events import QUEUE_BYTES, visible_overview
from .tasks import ReasonQuery

queues = Operations("queues")

MAX_NAME = 200
"""Characters of a part of a name that is searched for."""

Weight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]
WindowText = Annotated[str, Meta(max_length=100, examples=["mon-fri 22:00-06:00 Europe/Berlin"])]
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
    windows: Annotated[list[WindowText], Meta(max_length=MAX_WINDOWS)] | UnsetType | None = UNSET
    why: Why = ""


class SwitchQuery(ReasonQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason, for the audit log, and whether to set up a queue that nothing names yet."""

    create: CreateFlag = False


class TenantsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of tenants to list."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20


class QueuesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queues to list: those whose names contain `name`. In another order than by name: the worst only."""

    name: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    order: QueueOrder = QueueOrder.NAME
    limit: Annotated[int, Meta(ge=1, le=MAX_QUEUES)] = 100
    cursor: Cursor | None = None


class TypesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The types to list: those whose names contain `name`. In another order than by name: the worst only."""

    name: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    order: QueueOrder = QueueOrder.NAME
    limit: Annotated[int, Meta(ge=1, le=MAX_QUEUES)] = 100
    cursor: Cursor | None = None


@queues("GET", "/queues", Scope.READ, bound=True)
async def list_queues(request: ApiRequest[QueuesQuery, None]) -> QueueList:
    """List queues, with the number of tasks in each state."""
    view = await queue_view(request)
    return await off_loop(QUEUE_BYTES * len(view.overview.depths), view.search, _search(request.query))


@queues("GET", "/queues/{queue}", Scope.READ, bound=True)
async def get_queue(request: AnyRequest) -> QueueDocument:
    """Show a queue."""
    queue = request.path("queue")
    view = await queue_view(request)
    if view.has(queue):
        depths = view.overview.by_queue.get(queue, ())
        return await off_loop(QUEUE_BYTES * len(depths), view.document, queue)
    raise NotFound(f"there is no queue {queue[:200]!r}: no task, setting, worker or task type names it")


@queues("GET", "/queues/{queue}/types", Scope.READ, bound=True)
async def list_queue_types(request: ApiRequest[TypesQuery, None]) -> QueueTypes:
    """List types of the tasks in a queue, with the number in each state."""
    queue = (await get_queue(request)).queue
    overview = await visible_overview(request)
    view = QueueTypeView(overview=overview, queue=queue, with_workers=not request.caller.is_bound)
    size = QUEUE_BYTES * len(overview.by_queue.get(queue, ()))
    return await off_loop(size, view.search, _search(request.query))


@queues("GET", "/queues/{queue}/tenants", Scope.READ, bound=True)
async def list_queue_tenants(request: ApiRequest[TenantsQuery, None]) -> QueueTenants:
    """List the tenants with most tasks ready or running in a queue. At most a few seconds old."""
    queue = (await get_queue(request)).queue
    found = await request.service.tenants.get(request.caller.visible(Filter(queues=(queue,))))
    with_settings = request.caller.tenant is None
    known = {one.name: one for one in await request.operator().queues()} if with_settings else {}
    return queue_tenants(found, known.get(queue), request.query.limit)


@queues("PATCH", "/queues/{queue}", Scope.OPERATE, bound=True)
async def set_queue(request: ApiRequest[CreateQuery, QueueChangesInput]) -> QueueDocument:
    """Change settings of a queue. Omitted fields stay as they are. Programs notice within seconds."""
    body, queue = request.body, _controlled_queue(request)
    changes, paused = _changes(body), None if body.paused is UNSET else body.paused
    if changes or paused is not None:
        create = _creates(request, create=request.query.create)
        await request.operator(body.why).set_queue(queue, create=create, paused=paused, **changes)
    return await get_queue(request)


@queues("POST", "/queues/{queue}/pause", Scope.OPERATE, bound=True)
async def pause_queue(request: ApiRequest[SwitchQuery, None]) -> QueueDocument:
    """Pause a queue: no task starts until it is resumed; running tasks continue."""
    queue, create = _controlled_queue(request), _creates(request, create=request.query.create)
    await request.operator(request.query.why).pause(queue, create=create)
    return await get_queue(request)


@queues("POST", "/queues/{queue}/resume", Scope.OPERATE, bound=True)
async def resume_queue(request: ApiRequest[SwitchQuery, None]) -> QueueDocument:
    """Resume a queue."""
    queue, create = _controlled_queue(request), _creates(request, create=request.query.create)
    await request.operator(request.query.why).resume(queue, create=create)
    return await get_queue(request)


@queues("DELETE", "/queues/{queue}", Scope.OPERATE, bound=True, status=204, statuses=(409,))
async def remove_queue(request: ApiRequest[ReasonQuery, None]) -> None:
    """Remove the settings of a queue without tasks and workers, so that it is no longer listed."""
    await request.operator(request.query.why).remove_queue(_controlled_queue(request))
    request.service.overviews.forget()


def _search(query: QueuesQuery | TypesQuery) -> QueueSearch:
    return QueueSearch(name=query.name, order=query.order, limit=query.limit, cursor=query.cursor or "")


def _controlled_queue(request: AnyRequest) -> str:
    """Return the queue in the path; raise 403 unless the key may change it."""
    queue = request.path("queue")
    request.caller.require_queue_control(queue)
    return queue


def _creates(request: AnyRequest, *, create: bool) -> bool:
    """Whether the queue need not exist: those that a key is bound to always do, and are listed to it."""
    return create or request.caller.queues is not None


async def queue_view(request: AnyRequest) -> QueueView:
    """Return the queues that the caller may see, with cached counts and current settings."""
    caller, overview = request.caller, await visible_overview(request)
    found = await request.operator().queues()
    return QueueView(
        overview=overview,
        settings={one.name: one for one in found if caller.queues is None or one.name in caller.queues},
        with_workers=not caller.is_bound,
        with_settings=caller.tenant is None,
    )


def _changes(body: QueueChangesInput) -> QueueChanges:
    given = given_fields(body, QueueChanges.__annotations__)
    if isinstance(body.retention, RetentionDocument):
        # not strict, so that numbers are read as seconds
        given["retention"] = convert(body.retention, Retention, from_attributes=True, strict=False)
    return cast("QueueChanges", given)
