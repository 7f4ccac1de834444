"""Schedules: what is enqueued when; add, pause, trigger, remove. (T2, T5)"""

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
from ..operation import Answer, Asked, NoQuery, Operations
from .tasks import Reason

schedules = Operations("schedules")

Rule = Annotated[
    str | Annotated[float, Meta(gt=0)],
    Meta(description="A cron expression, or an interval: seconds, or text like 5m.", examples=["0 3 * * *"]),
]
Zone = Annotated[str, Meta(min_length=1, max_length=100, examples=["Europe/Berlin"])]


class ScheduleSaid(Struct, kw_only=True, forbid_unknown_fields=True):
    """When to enqueue which task. What is left out is as the type declares, or the default."""

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


class Upcoming(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many ticks to show."""

    number: Annotated[int, Meta(ge=1, le=MAX_UPCOMING)] = 5


class Triggered(Struct, kw_only=True):
    """The task that was enqueued."""

    id: Id


@schedules("GET", "/schedules", scope=Scope.READ, answer=ScheduleList)
async def list_schedules(asked: Asked[NoQuery, None]) -> ScheduleList:
    """List schedules, and when each is due next."""
    return ScheduleList(
        items=[schedule_document(one) for one in await asked.service.app.operator.schedules.list()]
    )


@schedules("GET", "/schedules/{name}", scope=Scope.READ, answer=ScheduleDocument, answers=(404,))
async def get_schedule(asked: Asked[NoQuery, None]) -> ScheduleDocument:
    """Show a schedule."""
    return await _shown(asked)


@schedules("GET", "/schedules/{name}/ticks", scope=Scope.READ, query=Upcoming, answer=Ticks, answers=(404,))
async def list_ticks(asked: Asked[Upcoming, None]) -> Ticks:
    """List the next ticks of a schedule."""
    found = asked.service.app.operator.schedules
    return Ticks(items=[*await found.upcoming(asked.path("name"), asked.query.number)])


@schedules("PUT", "/schedules/{name}", scope=Scope.OPERATE, body=ScheduleSaid, answer=ScheduleDocument)
async def put_schedule(asked: Asked[NoQuery, ScheduleSaid]) -> ScheduleDocument:
    """Add a schedule, or put it in place of the one of the same name; its first tick is the next one."""
    body = asked.body
    spec = asked.service.app.types.get(body.type)
    payload = checked_payload(b"{}" if body.payload is UNSET else bytes(body.payload), spec)
    said: Any = {
        name: value for name in ScheduleOptions.__annotations__ if (value := getattr(body, name)) is not UNSET
    }
    found = asked.operator(body.why).schedules
    made = await found.make(asked.path("name"), body.type, body.rule, payload, spec, **said)
    await found.put(made, instead=True)
    return await _shown(asked)


@schedules("DELETE", "/schedules/{name}", scope=Scope.OPERATE, query=Reason, status=204, answers=(404,))
async def remove_schedule(asked: Asked[Reason, None]) -> None:
    """Forget a schedule; tasks that it has enqueued stay."""
    await asked.operator(asked.query.why).schedules.remove(asked.path("name"))


@schedules(
    "POST",
    "/schedules/{name}/pause",
    scope=Scope.OPERATE,
    query=Reason,
    answer=ScheduleDocument,
    answers=(404,),
)
async def pause_schedule(asked: Asked[Reason, None]) -> ScheduleDocument:
    """Fire no tick until it is resumed; those that come meanwhile are not made up for."""
    await asked.operator(asked.query.why).schedules.pause(asked.path("name"))
    return await _shown(asked)


@schedules(
    "POST",
    "/schedules/{name}/resume",
    scope=Scope.OPERATE,
    query=Reason,
    answer=ScheduleDocument,
    answers=(404,),
)
async def resume_schedule(asked: Asked[Reason, None]) -> ScheduleDocument:
    """Go on with the next tick."""
    await asked.operator(asked.query.why).schedules.resume(asked.path("name"))
    return await _shown(asked)


@schedules(
    "POST",
    "/schedules/{name}/trigger",
    scope=Scope.OPERATE,
    answer=Triggered,
    status=201,
    answers=(404, 409),
    says=("Location",),
)
async def trigger_schedule(asked: Asked[NoQuery, None]) -> Answer:
    """Enqueue its task now, once; its ticks come as if nothing had happened. The task says who did it."""
    task_id = await asked.operator().schedules.trigger(asked.path("name"))
    return Answer(value=Triggered(id=task_id), headers=asked.location(task_id))


async def _shown(asked: Asked[Any, Any]) -> ScheduleDocument:
    return schedule_document(await asked.service.app.operator.schedules.get(asked.path("name")))
