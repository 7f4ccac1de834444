"""Limits, quotas and disabled endpoints: what holds tasks back, and who uses how much; change them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from ..._documents.limits import LimitDocument, UsageDocument
from ..._documents.quotas import QuotaDocument
from ..._html.formats import size
from ..._http.resources.endpoints import enable_endpoint, list_endpoints
from ..._http.resources.limits import get_limit, list_limits, put_limit, remove_limit
from ..._http.resources.quotas import list_quotas, put_quota, remove_quota
from ..._http.web.problems import Problem
from ..._model.limit import OTHERS
from ..._policy.input.quote import counted
from ..._policy.order.limit_options import format_rate, parse_rate
from ..form_fields import whole_of
from ..page import Done, Pages
from ..view import View

limits = Pages()

MAX_ROWS = 200
MAX_USES = 50
"""Values of a limit, or tenants of a quota, that a page lists; the busiest."""

_UNITS = {"s": "a second", "m": "a minute", "h": "an hour"}
_FIELDS = ("name", "queue", "type", "tenant", "by", "running", "rate", "burst")


class LimitRow(Struct, frozen=True, kw_only=True):
    """A limit in words. `share` is that of the value that uses most of it."""

    name: str
    applies_to: str
    allows: str
    by: str | None
    share: float
    uses: list[UsageDocument]
    declared: bool


def limit_row(limit: LimitDocument) -> LimitRow:
    """Return a limit in words."""
    return LimitRow(
        name=limit.name,
        applies_to=_applies_to(limit),
        allows=_allows(limit),
        by=limit.by,
        share=limit.in_use[0].share if limit.in_use else 0.0,
        uses=limit.in_use,
        declared=limit.declared,
    )


@limits.screen("/limits", "limits.html", "Limits")
async def show_limits(view: View) -> Mapping[str, Any]:
    """List limits, quotas, and endpoints that are disabled."""
    found = (await view.call(list_limits)).items
    quotas = (await view.call(list_quotas)).items
    endpoints = (await view.call(list_endpoints)).items if view.caller.sees_payloads else []
    return {
        "limits": [limit_row(limit) for limit in found[:MAX_ROWS]],
        "number": len(found),
        "quotas": [(quota, _stored(quota), _used(quota)) for quota in quotas[:MAX_ROWS]],
        "number_of_quotas": len(quotas),
        "others": OTHERS,
        "endpoints": endpoints[:MAX_ROWS],
        "number_of_endpoints": len(endpoints),
    }


@limits.screen("/limits/{limit}", "limit.html", "Limit")
async def show_limit(view: View) -> Mapping[str, Any]:
    """Show a limit, and the values that use most of it."""
    found = await view.call(get_limit, name=view.path("limit"))
    return {"limit": limit_row(found), "running": found.running, "shown": MAX_USES}


@limits.screen("/limits/-/add", "limit-form.html", "Add a limit", live=False)
async def show_add(view: View) -> Mapping[str, Any]:
    """Show the form of a new limit; no limit can be named "-"."""
    return {"limit": None, "fields": {name: view.field(name) for name in (*_FIELDS, "all")}}


@limits.screen("/limits/{limit}/change", "limit-form.html", "Change a limit", live=False)
async def show_change(view: View) -> Mapping[str, Any]:
    """Show the form, filled with the limit as it is, or with what was sent."""
    limit = await view.call(get_limit, name=view.path("limit"))
    stored = {name: "" if (value := getattr(limit, name)) is None else str(value) for name in _FIELDS}
    stored["rate"] = "" if limit.rate is None else format_rate(limit.rate)
    stored["all"] = ""
    return {"limit": limit, "fields": {name: view.field(name, text) for name, text in stored.items()}}


@limits.action("/limits/-/add", form="/limits/-/add")
async def add(view: View) -> Done:
    """Add a limit. One of the same name is not replaced."""
    name = view.field("name")
    if name in {one.name for one in (await view.call(list_limits)).items}:
        raise Problem("invalid-option", f"there is already a limit {name}; choose another name")
    await view.call(put_limit, body=_given(view), name=name)
    return Done(f"Limit {name} is added.", limit_page(name))


@limits.action("/limits/{limit}/change", form="/limits/{limit}/change")
async def change(view: View) -> Done:
    """Change a limit as the form says."""
    name = view.path("limit")
    before, body = await view.call(get_limit, name=name), _given(view)
    if before.tenant == "":  # tasks without a tenant, which no field can say
        body.setdefault("tenant", "")
    await view.call(put_limit, body=body, name=name)
    return Done(f"Limit {name} is changed.", limit_page(name))


@limits.action("/limits/{limit}/remove")
async def remove(view: View) -> Done:
    """Remove a limit."""
    name = view.path("limit")
    await view.call(remove_limit, query={"why": view.why}, name=name)
    return Done(f"Limit {name} is removed.", "limits")


@limits.action("/quotas")
async def set_quota(view: View) -> Done:
    """Set the quota of a tenant."""
    tenant = view.field("tenant")
    body = {name: whole_of(view.field(name), name) for name in ("tasks", "bytes")}
    await view.call(put_quota, body={**body, "why": view.why}, tenant=tenant)
    return Done(f"The quota of {_whose(tenant)} is set.", "limits")


@limits.action("/quotas/{tenant}/remove")
async def remove_tenant_quota(view: View) -> Done:
    """Remove the quota of a tenant."""
    tenant = view.path("tenant")
    await view.call(remove_quota, query={"why": view.why}, tenant=tenant)
    return Done(f"The quota of {_whose(tenant)} is removed.", "limits")


@limits.action("/endpoints/{endpoint}/enable")
async def enable(view: View) -> Done:
    """Enable an endpoint."""
    await view.call(enable_endpoint, query={"why": view.why}, name=view.path("endpoint"))
    return Done("The endpoint is enabled; its dead letters can be replayed.", "limits")


def limit_page(name: str) -> str:
    """Return the page of a limit."""
    return f"limits/{quote(name, safe='')}"


def _given(view: View) -> dict[str, Any]:
    """Return the fields of the form as the API takes them; empty ones are left out."""
    body: dict[str, Any] = {name: view.field(name) for name in ("queue", "type", "tenant", "by")}
    body |= {name: whole_of(view.field(name), name) for name in ("running", "burst")}
    body["rate"] = parse_rate(view.field("rate")) if view.field("rate") else None
    body["all"] = view.field("all") == "yes"
    return {name: value for name, value in body.items() if value not in ("", None)} | {"why": view.why}


def _applies_to(limit: LimitDocument) -> str:
    named = (("queue", limit.queue), ("type", limit.type), ("tenant", limit.tenant))
    return ", ".join(f"{kind} {name}" for kind, name in named if name is not None) or "all tasks"


def _allows(limit: LimitDocument) -> str:
    parts = []
    if limit.running is not None:
        parts.append(f"{limit.running:,} running")
    if limit.rate is not None:
        parts.append(f"{_rate(limit.rate)}, {counted(limit.burst or 1, 'start')} at once")
    each = "" if limit.by is None else f", for each {limit.by}"
    return " and ".join(parts) + each


def _rate(rate: float) -> str:
    starts, _, unit = format_rate(rate).partition("/")
    return f"{starts} {'start' if starts == '1' else 'starts'} {_UNITS[unit]}"


def _stored(quota: QuotaDocument) -> str:
    """Return how much a tenant may have stored, in words."""
    parts = [] if quota.tasks is None else [counted(quota.tasks, "task")]
    parts += [] if quota.bytes is None else [size(quota.bytes)]
    return " and ".join(parts)


def _used(quota: QuotaDocument) -> str:
    """Return what is stored by the tenant that has used most of a quota, in words."""
    if not quota.in_use:
        return ""
    most = quota.in_use[0]
    whose = f"by {most.tenant or 'no tenant'}, " if quota.tenant == OTHERS else ""
    return f"{whose}{counted(most.tasks, 'task')}, {size(most.bytes)}"


def _whose(tenant: str) -> str:
    return "all other tenants" if tenant == OTHERS else tenant
