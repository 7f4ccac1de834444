"""Limits: how many may run at once, or start in a time; and what of them is in use. (F4, F5)"""

from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._client.declarations import check_limit
from ..._documents.limits import LimitDocument, LimitList, limit_document, limit_documents
from ..._model.key import Scope
from ..._model.limit import MAX_BURST, MAX_RATE, MAX_RUNNING
from ..._policy.order.limit_options import LimitOptions, changed_limit, new_limit
from ..input_fields import Name, Why
from ..operation import Asked, NoQuery, Operations
from .tasks import Reason

limits = Operations("limits")

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


@limits("GET", "/limits", scope=Scope.READ, answer=LimitList)
async def list_limits(asked: Asked[NoQuery, None]) -> LimitList:
    """List limits, and what of them is in use."""
    found = asked.service.app.operator.limits
    return LimitList(items=limit_documents(await found.list(), await found.usages()))


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
    return limit_document(limit, await found.usages(limit.name))


def _options(said: LimitSaid | LimitSet) -> LimitOptions:
    options: Any = {  # checked, name by name, by what reads it
        name: value for name in LimitOptions.__annotations__ if (value := getattr(said, name)) is not UNSET
    }
    return cast("LimitOptions", options)
