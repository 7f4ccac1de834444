"""Alerts on dead letters: which are raised, and why; add, change and remove them."""

from collections.abc import Mapping
from typing import Any

from ..._documents.alerts import AlertDocument
from ..._http.resources.alerts import list_alerts, put_alert, remove_alert
from ..._policy.input.options import parse_duration
from ..page import Done, Pages
from ..view import View

alerts = Pages()


@alerts.screen("/alerts", "alerts.html", "Alerts")
async def show_alerts(view: View) -> Mapping[str, Any]:
    """List all alerts, those that are raised first."""
    found = (await view.call(list_alerts)).items
    return {"alerts": sorted(found, key=_order), "type": view.query("type"), "queue": view.query("queue")}


@alerts.action("/alerts")
async def put(view: View) -> Done:
    """Add an alert, or change the one of that name."""
    name = view.field("name")
    durations = {one: _seconds(view.field(one), one) for one in ("window", "hold")}
    body = {
        "why": view.why,
        "count": int(view.number("count") or 1),
        "window": durations["window"],
        **({"hold": durations["hold"]} if durations["hold"] is not None else {}),
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


def _seconds(text: str, what: str) -> float | None:
    return parse_duration(text, what).total_seconds() if text else None
