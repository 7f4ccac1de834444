"""Limits: caps on running tasks and rates of starts."""

from collections import defaultdict
from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._documents.limits import LimitDocument, LimitList, limit_document
from ..._model.key import Scope
from ..._model.limit import MAX_BURST, MAX_RATE, MAX_RUNNING, Usage
from ..._policy.order.limit_options import LimitChanges
from ..input_fields import CreateQuery, Name, Why, given_fields
from ..operation import AnyRequest, ApiRequest, NoQuery, Operations
from .tasks import ReasonQuery

limits = Operations("limits")

Running = Annotated[int, Meta(ge=0, le=MAX_RUNNING)]
Rate = Annotated[float, Meta(gt=0, le=MAX_RATE, description="Starts per second.")]
Burst = Annotated[int, Meta(ge=1, le=MAX_BURST)]
Field = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\W\d]\w*(\.host)?$")]
AllFlag = Annotated[
    bool, Meta(description="Apply to all tasks: required for a limit without a queue, type and tenant.")
]
TenantName = Annotated[str, Meta(max_length=128)]


class LimitInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """A limit on tasks of this queue, type and tenant (null: any). `by`: each value has its own count."""

    queue: Name | None = None
    type: Name | None = None
    tenant: TenantName | None = None
    by: Field | None = None
    running: Running | None = None
    rate: Rate | None = None
    burst: Burst | None = None
    all: AllFlag = False
    why: Why = ""


class LimitChangesInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of a limit to change; null removes one."""

    queue: Name | UnsetType | None = UNSET
    type: Name | UnsetType | None = UNSET
    tenant: TenantName | UnsetType | None = UNSET
    by: Field | UnsetType | None = UNSET
    running: Running | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Burst | UnsetType | None = UNSET
    all: AllFlag = False
    why: Why = ""


@limits("GET", "/limits", Scope.READ)
async def list_limits(request: AnyRequest) -> LimitList:
    """List limits and their use."""
    found = request.operator().limits
    listed = await found.list()
    used: dict[str, list[Usage]] = defaultdict(list)
    for usage in await found.usages():
        used[usage.limit].append(usage)
    declared = await found.declared()
    return LimitList(
        items=[limit_document(one, used[one.name], declared=one.name in declared) for one in listed]
    )


@limits("GET", "/limits/{name}", Scope.READ)
async def get_limit(request: AnyRequest) -> LimitDocument:
    """Show a limit and its use."""
    found = request.operator().limits
    limit = await found.get(request.path("name"))
    declared = limit.name in await found.declared()
    return limit_document(limit, await found.usages(limit.name), declared=declared)


@limits("PUT", "/limits/{name}", Scope.OPERATE)
async def put_limit(request: ApiRequest[NoQuery, LimitInput]) -> LimitDocument:
    """Create or replace a limit. It applies from the next claim on."""
    return await _set(request, create=True)


@limits("PATCH", "/limits/{name}", Scope.OPERATE)
async def change_limit(request: ApiRequest[CreateQuery, LimitChangesInput]) -> LimitDocument:
    """Change some fields of a limit."""
    return await _set(request, create=request.query.create)


@limits("DELETE", "/limits/{name}", Scope.OPERATE, status=204)
async def remove_limit(request: ApiRequest[ReasonQuery, None]) -> None:
    """Remove a limit."""
    await request.operator(request.query.why).limits.remove(request.path("name"))


async def _set(
    request: ApiRequest[Any, LimitInput] | ApiRequest[Any, LimitChangesInput], *, create: bool
) -> LimitDocument:
    changes = cast("LimitChanges", given_fields(request.body, LimitChanges.__annotations__))
    await request.operator(request.body.why).limits.set(request.path("name"), create=create, **changes)
    return await get_limit(request)
