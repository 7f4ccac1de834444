"""Limits: how many may run at once, or start in a time; and what of them is in use. (F4, F5)"""

from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._client.declarations import check_limit
from ..._model.key import Scope
from ..._model.limit import MAX_BURST, MAX_RATE, MAX_RUNNING, Limit, Usage
from ..._policy.order.limit_options import LimitOptions, changed_limit, new_limit
from ..documents import Name, Why, like
from ..operation import Asked, NoQuery, Operations
from .tasks import Reason

limits = Operations("limits")

MAX_SHOWN = 1_000
"""Values of one limit that are shown, those that use most of it: there may be one for each tenant."""

Running = Annotated[int, Meta(ge=0, le=MAX_RUNNING)]
Rate = Annotated[float, Meta(gt=0, le=MAX_RATE, description="Starts a second.")]
Burst = Annotated[int, Meta(ge=1, le=MAX_BURST)]
Field = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\W\d]\w*$")]
TenantName = Annotated[str, Meta(max_length=128)]


class LimitSaid(Struct, kw_only=True, forbid_unknown_fields=True):
    """A limit, for the tasks of this queue, type and tenant (left out: any); `by` counts each value apart."""

    queue: Name | None = None
    type: Name | None = None
    tenant: TenantName | None = None
    by: Field | None = None
    running: Running | None = None
    rate: Rate | None = None
    burst: Burst | None = None
    why: Why = ""


class LimitSet(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is to change of a limit; null takes it away."""

    queue: Name | UnsetType | None = UNSET
    type: Name | UnsetType | None = UNSET
    tenant: TenantName | UnsetType | None = UNSET
    by: Field | UnsetType | None = UNSET
    running: Running | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Burst | UnsetType | None = UNSET
    why: Why = ""


class UsageDocument(Struct, kw_only=True):
    """What one value uses: how many run, and how many may start at once (null: there is no rate)."""

    value: str
    running: int
    tokens: float | None


class LimitDocument(Struct, kw_only=True):
    """A limit, and what of it is in use: of at most 1,000 values, those that use most."""

    name: str
    queue: str | None
    type: str | None
    tenant: str | None
    by: str | None
    running: int | None
    rate: float | None
    burst: int | None
    in_use: list[UsageDocument]


class LimitList(Struct, kw_only=True):
    """Every limit, by name."""

    items: list[LimitDocument]


@limits("GET", "/limits", scope=Scope.READ, answer=LimitList)
async def list_limits(asked: Asked[NoQuery, None]) -> LimitList:
    """List limits, and what of them is in use."""
    operator = asked.service.app.operator
    used: dict[str, list[Usage]] = {}
    for usage in await operator.limits.usages():
        used.setdefault(usage.limit, []).append(usage)
    return LimitList(items=[_document(one, used.get(one.name, [])) for one in await operator.limits.list()])


@limits("GET", "/limits/{name}", scope=Scope.READ, answer=LimitDocument, answers=(404,))
async def get_limit(asked: Asked[NoQuery, None]) -> LimitDocument:
    """Show a limit, and what of it is in use."""
    return await _shown(asked)


@limits("PUT", "/limits/{name}", scope=Scope.OPERATE, body=LimitSaid, answer=LimitDocument)
async def put_limit(asked: Asked[NoQuery, LimitSaid]) -> LimitDocument:
    """Set a limit, in place of the one of the same name. It holds from the next claim on."""
    name, options = asked.path("name"), _options(asked.body)
    check_limit(new_limit(name, options), asked.service.app.types)
    await asked.operator(asked.body.why).limits.set(name, **options)
    return await _shown(asked)


@limits("PATCH", "/limits/{name}", scope=Scope.OPERATE, body=LimitSet, answer=LimitDocument, answers=(404,))
async def change_limit(asked: Asked[NoQuery, LimitSet]) -> LimitDocument:
    """Change what is named of a limit that exists."""
    name, options, found = asked.path("name"), _options(asked.body), asked.operator(asked.body.why).limits
    check_limit(changed_limit(await found.get(name), options), asked.service.app.types)
    await found.change(name, **options)
    return await _shown(asked)


@limits("DELETE", "/limits/{name}", scope=Scope.OPERATE, query=Reason, status=204, answers=(404,))
async def remove_limit(asked: Asked[Reason, None]) -> None:
    """Limit nothing by this any more."""
    await asked.operator(asked.query.why).limits.remove(asked.path("name"))


async def _shown(asked: Asked[Any, Any]) -> LimitDocument:
    found = asked.service.app.operator.limits
    limit = await found.get(asked.path("name"))
    return _document(limit, await found.usages(limit.name))


def _options(said: LimitSaid | LimitSet) -> LimitOptions:
    options: Any = {  # checked, name by name, by what reads it
        name: value for name in LimitOptions.__annotations__ if (value := getattr(said, name)) is not UNSET
    }
    return cast("LimitOptions", options)


def _document(limit: Limit, usages: list[Usage] | Any) -> LimitDocument:
    most = limit.busiest(usages)[:MAX_SHOWN]
    return like(
        LimitDocument,
        limit,
        burst=limit.capacity if limit.rate is not None else None,
        in_use=[like(UsageDocument, one) for one in most],
    )
