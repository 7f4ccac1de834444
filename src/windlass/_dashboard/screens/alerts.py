"""Alerts on dead letters: which are raised, and why; add, change and remove them."""

from collections.abc import Mapping
from typing import Any

from ..._documents.alerts import AlertDocument
from ..._http.resources.alerts import list_alerts, put_alert, remove_alert
from ..form_fields import duration_field, seconds_of, whole_of
from ..page import Done, Pages
from ..view import View

alerts = Pages()


@alerts.screen("/alerts", "alerts.html", "Alerts")
async def show_alerts(view: View) -> Mapping[str, Any]:
    """List all alerts, those that are raised first."""
    found = (await view.call(list_alerts)).items
    rows = [(one, duration_field(one.window), duration_field(one.hold)) for one in sorted(found, key=_order)]
    return {"alerts": rows, "type": view.query("type"), "queue": view.query("queue")}


@alerts.action("/alerts")
async def put(view: View) -> Done:
    """Add an alert, or change the one of that name."""
    name = view.field("name")
    hold = seconds_of(view.field("hold"), "hold")
    body = {
        "why": view.why,
        "count": whole_of(view.field("count"), "count") or 1,
        "window": seconds_of(view.field("window"), "window"),
        **({} if hold is None else {"hold": hold}),
        **{one: view.field(one) or None for one in ("type", "queue", "webhook")},
    }
    await view.call(put_alert, body=body, name=name)
    return Done(f"Alert {name} is set; the keeper applies it within seconds.", "alerts")


@alerts.action("/alerts/{alert}/remove")
async def remove(view: View) -> Done:
    """Remove an alert."""
    name = view.path("alert")
    await view.call(remove_alert, query={"why": view.why}, name=name)
    return Done(f"Alert {name} is removed.", "alerts")


def _order(alert: AlertDocument) -> tuple[bool, str]:
    return alert.state != "raised", alert.name
