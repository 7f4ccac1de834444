"""The audit log: who did what, and why."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from ...._documents.audit import AuditDocument
from ...._http.resources.audit import list_audit
from ...page import Pages
from ...view import View

audit = Pages()

ACTIONS = (
    "cancel", "create", "discard", "pause", "prune", "remove", "replay", "resume", "reveal", "revoke",
    "rewrite", "rotate", "set", "trigger",
)  # fmt: skip
_CRITERIA = ("who", "action", "subject")
_PLACES = {
    "alert": "alerts",
    "key": "keys",
    "limit": "limits/{}",
    "queue": "queues/{}",
    "quota": "limits",
    "schedule": "schedules/{}",
}
_PAGE = 50


@audit.screen("/audit", "audit.html", "Audit log")
async def show_audit(view: View) -> Mapping[str, Any]:
    """List the newest entries, or those that match."""
    asked = {name: text for name in _CRITERIA if (text := view.query(name).strip())}
    at = {"cursor": cursor} if (cursor := view.query("cursor")) else {}
    found = await view.call(list_audit, query={**asked, **at, "limit": _PAGE})
    return {
        "entries": [(entry, _place(entry)) for entry in found.items],
        "asked": {name: asked.get(name, "") for name in _CRITERIA},
        "is_search": bool(asked),
        "actions": ACTIONS,
        "first": f"?{urlencode(asked)}" if cursor else None,
        "next": f"?{urlencode({**asked, 'cursor': found.cursor})}" if found.cursor else None,
    }


def _place(entry: AuditDocument) -> str:
    """Return the page of what an entry is about, below the dashboard; "" if there is none."""
    if entry.task_id is not None:
        return f"tasks/{entry.task_id}"
    kind, _, name = entry.subject.partition(" ")
    return _PLACES.get(kind, "").format(quote(name, safe=""))
