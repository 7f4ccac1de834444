"""Alerts on dead letters: list, put and remove them."""

from typing import Annotated, cast

from msgspec import Meta, Struct

from ..._documents.alerts import AlertDocument, AlertList, alert_document
from ..._documents.fields import Seconds
from ..._model.alert import HOLD, MAX_COUNT
from ..._model.brief import Brief
from ..._model.key import Scope
from ..._model.task import MAX_DELAY
from ..._policy.alerts import MAX_URL, AlertOptions, webhook_origin
from ..input_fields import Name, Why, given_fields
from ..operation import AnyRequest, ApiRequest, NoQuery, Operations
from .tasks import ReasonQuery

alerts = Operations("alerts")

Window = Annotated[
    float,
    Meta(
        gt=0,
        le=MAX_DELAY.total_seconds(),
        description="Count only tasks that died within these seconds; null counts all.",
    ),
]
Url = Annotated[str, Meta(min_length=1, max_length=MAX_URL, examples=["https://hooks.example/windlass"])]


class AlertInput(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """An alert: raised at `count` dead letters of this type and queue (null: any), posted to `webhook`."""

    type: Name | None = None
    queue: Name | None = None
    count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 1
    window: Window | None = None
    hold: Annotated[Seconds, Meta(description="Seconds below the count before it is cleared.")] = (
        HOLD.total_seconds()
    )
    webhook: Url | None = None
    why: Why = ""


@alerts("GET", "/alerts", Scope.READ)
async def list_alerts(request: AnyRequest) -> AlertList:
    """List alerts with their state. Of a webhook only the host is shown."""
    return AlertList(items=[alert_document(one) for one in await request.operator().alerts.list()])


@alerts("GET", "/alerts/{name}", Scope.READ)
async def get_alert(request: AnyRequest) -> AlertDocument:
    """Show an alert and its state."""
    return alert_document(await request.operator().alerts.get(request.path("name")))


@alerts("PUT", "/alerts/{name}", Scope.OPERATE)
async def put_alert(request: ApiRequest[NoQuery, AlertInput]) -> AlertDocument:
    """Create or replace an alert. The keeper applies it within seconds.

    With `webhook` as it is shown, without its path, the one that is stored stays.
    """
    options = cast("AlertOptions", given_fields(request.body, AlertOptions.__annotations__))
    alerts, name = request.operator(request.body.why).alerts, request.path("name")
    stored = {one.alert.name: one.alert.webhook for one in await alerts.list()}.get(name)
    if stored is not None and options.get("webhook") == webhook_origin(stored):
        options["webhook"] = stored
    await alerts.add(name, **options)
    return await get_alert(request)


@alerts("DELETE", "/alerts/{name}", Scope.OPERATE, status=204)
async def remove_alert(request: ApiRequest[ReasonQuery, None]) -> None:
    """Remove an alert. If it is raised, no "cleared" message is sent."""
    await request.operator(request.query.why).alerts.remove(request.path("name"))
