"""What holds tasks back: limits, quotas of tenants, and disabled endpoints of webhooks."""

from collections import defaultdict
from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._documents.endpoints import EndpointList, endpoint_document
from ..._documents.limits import LimitDocument, LimitList, limit_document
from ..._documents.quotas import QuotaDocument, QuotaList, quota_document, tenant_quota
from ..._model.key import Scope
from ..._model.limit import MAX_BURST, MAX_RATE, MAX_RUNNING, MAX_STORED_BYTES, MAX_STORED_TASKS, Usage
from ..._policy.input.quote import quoted
from ..._policy.order.limit_options import LimitChanges
from ..._policy.quota import by_quota
from ...errors import NotFound
from ..input_fields import CreateQuery, Name, Why, given_fields
from ..operation import AnyRequest, ApiRequest, NoQuery, Operations
from ..web.problems import Problem
from .tasks import ReasonQuery

limits = Operations("limits")
quotas = Operations("quotas")
endpoints = Operations("endpoints")

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


# -- quotas -----------------------------------------------------------------------------------------


class QuotaInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """At most this many tasks and bytes stored; null: any number. Give at least one."""

    tasks: Annotated[int, Meta(ge=0, le=MAX_STORED_TASKS)] | None = None
    bytes: Annotated[int, Meta(ge=0, le=MAX_STORED_BYTES)] | None = None
    why: Why = ""


@quotas("GET", "/quotas", Scope.READ, bound=True)
async def list_quotas(request: AnyRequest) -> QuotaList:
    """List the quotas of tenants and what is used of them.

    A key that is bound to a tenant sees the quota that applies to it. What is used was counted a few seconds
    ago, or longer if there are millions of tasks; what this server stored since is added.
    """
    _require_whole_tenant(request)
    use = request.service.store.use
    await use.refresh()
    tenant = request.caller.tenant
    if tenant is None:
        users = by_quota(use.quotas, use.all())
        return QuotaList(items=[quota_document(one, users[one.name]) for one in use.quotas.values()])
    own = tenant_quota(use.quotas, use.all(), tenant)
    return QuotaList(items=[] if own is None else [own])


@quotas("GET", "/quotas/{tenant}", Scope.READ, bound=True)
async def get_quota(request: AnyRequest) -> QuotaDocument:
    """Show the quota of a tenant, or of `*`, and what is used of it.

    To a key that is bound to a tenant, only the quota that applies to it exists.
    """
    _require_whole_tenant(request)
    tenant, use = request.path("tenant"), request.service.store.use
    await use.refresh()
    if request.caller.tenant is not None:
        own = tenant_quota(use.quotas, use.all(), request.caller.tenant)
        if own is not None and tenant in (request.caller.tenant, own.tenant):
            return own
    elif tenant in use.quotas:
        return quota_document(use.quotas[tenant], by_quota(use.quotas, use.all())[tenant])
    raise NotFound(f"there is no quota for {quoted(tenant)}")


@quotas("PUT", "/quotas/{tenant}", Scope.OPERATE)
async def put_quota(request: ApiRequest[NoQuery, QuotaInput]) -> QuotaDocument:
    """Create or replace the quota of a tenant, or of `*`. Servers apply it within 2 seconds.

    What is stored already stays, even if it is more.
    """
    body = request.body
    quotas = request.operator(body.why).quotas
    await quotas.set(request.path("tenant"), tasks=body.tasks, bytes=body.bytes)
    return await get_quota(request)


@quotas("DELETE", "/quotas/{tenant}", Scope.OPERATE, status=204)
async def remove_quota(request: ApiRequest[ReasonQuery, None]) -> None:
    """Remove a quota."""
    await request.operator(request.query.why).quotas.remove(request.path("tenant"))


def _require_whole_tenant(request: AnyRequest) -> None:
    """Raise 403 for keys that are bound to queues: what a tenant uses tells of its other queues."""
    if request.caller.queues is not None:
        raise Problem("forbidden", "this key is bound to queues; a quota concerns all queues of a tenant")


# -- disabled endpoints -----------------------------------------------------------------------------


@endpoints("GET", "/endpoints", Scope.READ)
async def list_endpoints(request: AnyRequest) -> EndpointList:
    """List the endpoints that `deliver_webhook` sends nothing to, as they responded with 410 Gone."""
    return EndpointList(items=[endpoint_document(one) for one in await request.operator().endpoints.list()])


@endpoints("POST", "/endpoints/{name}/enable", Scope.OPERATE, status=204)
async def enable_endpoint(request: ApiRequest[ReasonQuery, None]) -> None:
    """Enable a disabled endpoint, by its id. Workers heed it within 10 seconds; replay its dead letters."""
    await request.operator(request.query.why).endpoints.enable(request.path("name"))
