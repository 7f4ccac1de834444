"""Quotas: how much a tenant may have stored."""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.quotas import QuotaDocument, QuotaList, quota_document, tenant_quota
from ..._model.key import Scope
from ..._model.limit import MAX_STORED_BYTES, MAX_STORED_TASKS
from ..._policy.input.quote import quoted
from ..._policy.quota import by_quota
from ...errors import NotFound
from ..input_fields import Why
from ..operation import AnyRequest, ApiRequest, NoQuery, Operations
from ..web.problems import Problem
from .tasks import ReasonQuery

quotas = Operations("quotas")


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
