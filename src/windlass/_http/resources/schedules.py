"""Schedules: list, put, pause, resume, trigger and remove them."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._client.builder import checked_payload
from ..._client.schedules import MAX_UPCOMING
from ..._documents.fields import Id, Seconds
from ..._documents.schedules import ScheduleDocument, ScheduleList, Ticks, schedule_document
from ..._model.key import Scope
from ..._model.schedule import Missed, Overlap, ScheduleOptions
from ..._policy.schedule import MAX_AT_MOST, MAX_JITTER
from ..input_fields import Attempts, Name, Payload, Priority, Why
from ..operation import ApiRequest, ApiResponse, NoQuery, Operations
from .tasks import ReasonQuery

schedules = Operations("schedules")

Rule = Annotated[
    str | Annotated[float, Meta(gt=0)],
    Meta(
        description="A cron expression, or an interval: seconds, or text such as 5m.",
        examples=["0 3 * * *"],
    ),
]
Zone = Annotated[str, Meta(min_length=1, max_length=100, examples=["Europe/Berlin"])]


class ScheduleInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """A schedule. Omitted fields take the task type's defaults."""

    type: Name
    rule: Rule
    payload: Payload | UnsetType = UNSET
    zone: Zone | UnsetType = UNSET
    missed: Missed | UnsetType = UNSET
    at_most: Annotated[int, Meta(ge=1, le=MAX_AT_MOST)] | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    jitter: Annotated[float, Meta(ge=0, le=MAX_JITTER.total_seconds())] | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    max_attempts: Attempts | UnsetType = UNSET
    timeout: Seconds | UnsetType | None = UNSET
    why: Why = ""


class TicksQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of ticks to list."""

    number: Annotated[int, Meta(ge=1, le=MAX_UPCOMING)] = 5


class TriggeredTask(Struct, kw_only=True):
    """The enqueued task."""

    id: Id


@schedules("GET", "/schedules", scope=Scope.READ, response=ScheduleList)
async def list_schedules(request: ApiRequest[NoQuery, None]) -> ScheduleList:
    """List schedules."""
    return ScheduleList(
        items=[schedule_document(one) for one in await request.service.app.operator.schedules.list()]
    )


@schedules("GET", "/schedules/{name}", scope=Scope.READ, response=ScheduleDocument, statuses=(404,))
async def get_schedule(request: ApiRequest[NoQuery, None]) -> ScheduleDocument:
    """Show a schedule."""
    return await _show(request)


@schedules(
    "GET", "/schedules/{name}/ticks", scope=Scope.READ, query=TicksQuery, response=Ticks, statuses=(404,)
)
async def list_ticks(request: ApiRequest[TicksQuery, None]) -> Ticks:
    """List the next ticks of a schedule."""
    found = request.service.app.operator.schedules
    return Ticks(items=[*await found.upcoming(request.path("name"), request.query.number)])


@schedules("PUT", "/schedules/{name}", scope=Scope.OPERATE, body=ScheduleInput, response=ScheduleDocument)
async def put_schedule(request: ApiRequest[NoQuery, ScheduleInput]) -> ScheduleDocument:
    """Create or replace a schedule. Ticks before now are not fired."""
    body = request.body
    spec = request.service.app.types.get(body.type)
    payload = checked_payload(b"{}" if body.payload is UNSET else bytes(body.payload), spec)
    options: Any = {
        name: value for name in ScheduleOptions.__annotations__ if (value := getattr(body, name)) is not UNSET
    }
    found = request.operator(body.why).schedules
    made = await found.make(request.path("name"), body.type, body.rule, payload, spec, **options)
    await found.put(made, instead=True)
    return await _show(request)


@schedules("DELETE", "/schedules/{name}", scope=Scope.OPERATE, query=ReasonQuery, status=204, statuses=(404,))
async def remove_schedule(request: ApiRequest[ReasonQuery, None]) -> None:
    """Remove a schedule. Tasks that it has enqueued stay."""
    await request.operator(request.query.why).schedules.remove(request.path("name"))


@schedules(
    "POST",
    "/schedules/{name}/pause",
    scope=Scope.OPERATE,
    query=ReasonQuery,
    response=ScheduleDocument,
    statuses=(404,),
)
async def pause_schedule(request: ApiRequest[ReasonQuery, None]) -> ScheduleDocument:
    """Pause a schedule. Ticks that pass meanwhile are not fired later."""
    await request.operator(request.query.why).schedules.pause(request.path("name"))
    return await _show(request)


@schedules(
    "POST",
    "/schedules/{name}/resume",
    scope=Scope.OPERATE,
    query=ReasonQuery,
    response=ScheduleDocument,
    statuses=(404,),
)
async def resume_schedule(request: ApiRequest[ReasonQuery, None]) -> ScheduleDocument:
    """Resume a schedule with its next tick."""
    await request.operator(request.query.why).schedules.resume(request.path("name"))
    return await _show(request)


@schedules(
    "POST",
    "/schedules/{name}/trigger",
    scope=Scope.OPERATE,
    response=TriggeredTask,
    status=201,
    statuses=(404, 409),
    response_headers=("Location",),
)
async def trigger_schedule(request: ApiRequest[NoQuery, None]) -> ApiResponse:
    """Enqueue the task of a schedule now. Its ticks are not affected; `enqueued_by` names the key."""
    task_id = await request.operator().schedules.trigger(request.path("name"))
    return ApiResponse(value=TriggeredTask(id=task_id), headers=request.location(task_id))


async def _show(request: ApiRequest[Any, Any]) -> ScheduleDocument:
    return schedule_document(await request.service.app.operator.schedules.get(request.path("name")))
