"""Schedules: list, put, pause, resume, trigger and remove them."""

from typing import Annotated, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._client.builder import checked_payload
from ..._client.schedules import MAX_PAST, MAX_UPCOMING
from ..._documents.fields import Id, Seconds
from ..._documents.schedules import (
    PastTicks,
    ScheduleDocument,
    ScheduleList,
    Ticks,
    past_tick_document,
    schedule_document,
)
from ..._ids import new_id
from ..._model.brief import Brief
from ..._model.key import Scope
from ..._model.schedule import Missed, Overlap, ScheduleOptions
from ..._policy.schedule import MAX_AT_MOST, MAX_JITTER, triggered_task
from ..._policy.secrets.shown import masked_schedule
from ..bounds.rate_limit import limits_work
from ..input_fields import Attempts, Expires, Name, Payload, Priority, SecretFields, Why, given_fields
from ..operation import AnyRequest, ApiRequest, ApiResponse, NoQuery, Operations
from ..store_secrets import unmasked
from ..task_input import request_key
from .tasks import ReasonQuery, ShowQuery

schedules = Operations("schedules")

Rule = Annotated[
    str | Annotated[float, Meta(gt=0)],
    Meta(
        description="A cron expression, or an interval: seconds, or text such as 5m.",
        examples=["0 3 * * *"],
    ),
]
Zone = Annotated[str, Meta(min_length=1, max_length=100, examples=["Europe/Berlin"])]


class ScheduleFields(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """What can be left out of a schedule, and of a change of one."""

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
    expires: Expires | UnsetType | None = UNSET
    secret: SecretFields | UnsetType = UNSET
    why: Why = ""


class ScheduleChangesInput(ScheduleFields, kw_only=True, forbid_unknown_fields=True):
    """Fields of a schedule to change; the others stay as they are."""

    rule: Rule | UnsetType = UNSET


class ScheduleInput(ScheduleFields, kw_only=True, forbid_unknown_fields=True):
    """A schedule. Omitted fields take the task type's defaults."""

    type: Name
    rule: Rule


class TicksQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of ticks to list."""

    number: Annotated[int, Meta(ge=1, le=MAX_UPCOMING)] = 5


class PastTicksQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of ticks to list."""

    number: Annotated[int, Meta(ge=1, le=MAX_PAST)] = 5


class TriggeredTask(Struct, kw_only=True):
    """The enqueued task."""

    id: Id


@schedules("GET", "/schedules", Scope.READ)
async def list_schedules(request: AnyRequest) -> ScheduleList:
    """List schedules."""
    return ScheduleList(items=[schedule_document(one) for one in await request.operator().schedules.list()])


@schedules("GET", "/schedules/{name}", Scope.READ)
async def get_schedule(request: ApiRequest[ShowQuery, None]) -> ScheduleDocument:
    """Show a schedule."""
    if not request.query.reveal:
        return await _shown(request)
    request.caller.require_scope(Scope.REVEAL)
    status = await request.operator().schedules.reveal(request.path("name"))
    return schedule_document(status, reveal=True)


@schedules("GET", "/schedules/{name}/ticks", Scope.READ)
async def list_ticks(request: ApiRequest[TicksQuery, None]) -> Ticks:
    """List the next ticks of a schedule."""
    found = request.operator().schedules
    return Ticks(items=[*await found.upcoming(request.path("name"), request.query.number)])


@schedules("GET", "/schedules/{name}/ticks/past", Scope.READ)
async def list_past_ticks(request: ApiRequest[PastTicksQuery, None]) -> PastTicks:
    """List the last ticks of a schedule, newest first, and what became of them."""
    found = await request.operator().schedules.past(request.path("name"), request.query.number)
    return PastTicks(items=[past_tick_document(one) for one in found])


@schedules("PUT", "/schedules/{name}", Scope.OPERATE)
async def put_schedule(request: ApiRequest[NoQuery, ScheduleInput]) -> ScheduleDocument:
    """Create or replace a schedule. Ticks before now are not fired."""
    body = request.body
    spec = request.service.app.types.find(body.type)
    text = b"{}" if body.payload is UNSET else bytes(body.payload)
    payload = await request.off_loop(checked_payload, text, spec)
    options = cast("ScheduleOptions", given_fields(body, ScheduleOptions.__annotations__))
    found = request.operator(body.why).schedules
    made = await found.make(request.path("name"), body.type, body.rule, payload, spec, **options)
    stored = {one.schedule.name: one.schedule for one in await found.list()}.get(made.name)
    await found.put(unmasked(request.caller, made, stored), instead=True)
    return await _shown(request)


@schedules("PATCH", "/schedules/{name}", Scope.OPERATE)
async def change_schedule(request: ApiRequest[NoQuery, ScheduleChangesInput]) -> ScheduleDocument:
    """Change some fields of a schedule. With another rule, ticks before now are not fired.

    Without the scope `reveal`, secret values that it keeps stay secret: fields can be added to `secret`, and
    with another tenant or fewer secret fields the payload must be sent anew.
    """
    body, found = request.body, request.operator(request.body.why).schedules
    stored = (await found.get(request.path("name"))).schedule
    spec = request.service.app.types.find(stored.type)
    payload = None if body.payload is UNSET else bytes(body.payload)
    if payload is not None:
        payload = await request.off_loop(checked_payload, payload, spec)
    options = cast("ScheduleOptions", given_fields(body, ScheduleOptions.__annotations__))
    rule = None if body.rule is UNSET else body.rule
    changed = await found.changed(masked_schedule(stored), rule, payload, spec, **options)
    await found.put(unmasked(request.caller, changed, stored), instead=True)
    return await _shown(request)


@schedules("DELETE", "/schedules/{name}", Scope.OPERATE, status=204)
async def remove_schedule(request: ApiRequest[ReasonQuery, None]) -> None:
    """Remove a schedule. Tasks that it has enqueued stay."""
    await request.operator(request.query.why).schedules.remove(request.path("name"))


@schedules("POST", "/schedules/{name}/pause", Scope.OPERATE)
async def pause_schedule(request: ApiRequest[ReasonQuery, None]) -> ScheduleDocument:
    """Pause a schedule. Ticks that pass meanwhile are not fired later."""
    await request.operator(request.query.why).schedules.pause(request.path("name"))
    return await _shown(request)


@schedules("POST", "/schedules/{name}/resume", Scope.OPERATE)
async def resume_schedule(request: ApiRequest[ReasonQuery, None]) -> ScheduleDocument:
    """Resume a schedule with its next tick."""
    await request.operator(request.query.why).schedules.resume(request.path("name"))
    return await _shown(request)


@schedules(
    "POST",
    "/schedules/{name}/trigger",
    Scope.OPERATE,
    status=201,
    statuses=(409, 413, 507),
    request_headers=("Idempotency-Key",),
    response_headers=("Location", "Idempotency-Replayed"),
)
async def trigger_schedule(request: ApiRequest[ReasonQuery, None]) -> ApiResponse[TriggeredTask]:
    """Enqueue the task of a schedule now. Its ticks are not affected; `enqueued_by` names the key.

    With the header `Idempotency-Key` a repeat within 7 days gets the same response and enqueues nothing.
    """
    whole, key = request.service.whole_operator, request.caller.key
    operator = whole.acting_as(request.by(request.query.why)).schedules  # the task gets the whole payload
    if key is not None and limits_work(key):
        task = triggered_task((await operator.get(request.path("name"))).schedule, new_id)
        request.service.rate_limiter.take_work(key, [task])
    enqueued = await operator.trigger_once(request.path("name"), request_key(request.http))
    headers = request.location(enqueued.id)
    if not enqueued.created:
        headers |= {"Idempotency-Replayed": "true"}
    return ApiResponse(value=TriggeredTask(id=enqueued.id), headers=headers)


async def _shown(request: AnyRequest) -> ScheduleDocument:
    return schedule_document(await request.operator().schedules.get(request.path("name")))
