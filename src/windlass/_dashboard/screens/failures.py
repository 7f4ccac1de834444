"""Failures: dead letters that failed alike, and what to do with all of them: replay, spread, discard."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from ..._http.resources.tasks import MAX_AT_ONCE, discard_dead, list_dead, list_failures, replay_dead
from ..._http.web.problems import Problem
from ..._policy.input.quote import counted
from ..form_fields import number_of
from ..page import Done, Pages
from ..view import View

failures = Pages()

PERIODS = {"": "at any time", "1h": "within the last hour", "24h": "within the last day",
           "7d": "within the last week"}  # fmt: skip
_AGES = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
_ROUNDED = 10  # seconds, so that viewers of a page share what is read for it
_PAGE = 50
UNKNOWN = "unknown"
"""Stands in a URL for the empty id, that of tasks that died before failures were recorded."""


@failures.screen("/failures", "failures.html", "Failures", bound=True)
async def show_failures(view: View) -> Mapping[str, Any]:
    """List what dead letters failed with, the most frequent first."""
    asked = {name: view.query(name).strip() for name in ("type", "queue", "error", "period")}
    where: dict[str, Any] = {name: [asked[name]] for name in ("type", "queue") if asked[name]}
    if asked["error"]:
        where["error"] = asked["error"]
    if age := _AGES.get(asked["period"]):
        seconds = datetime.now(UTC).timestamp() // _ROUNDED * _ROUNDED
        where["finished_after"] = datetime.fromtimestamp(seconds, UTC) - age
    found = (await view.call(list_failures, query=where)).items
    return {
        "failures": found,
        "total": sum(failure.number for failure in found),
        "exact": all(failure.exact for failure in found),
        "asked": asked,
        "is_search": any(asked.values()),
        "periods": PERIODS,
        "unknown": UNKNOWN,
    }


@failures.screen("/failures/{failure}", "failure.html", "Failure", bound=True)
async def show_failure(view: View) -> Mapping[str, Any]:
    """Show one failure and its dead letters, newest first."""
    name, where = view.path("failure"), _where(view.path("failure"), view.query("type"))
    cursor = view.query("cursor")
    at = {"cursor": cursor} if cursor else {}
    listed, page = await asyncio.gather(
        view.call(list_failures, query=where),
        view.call(list_dead, query={**where, **at, "limit": _PAGE, "newest_first": True}),
    )
    found = listed.items
    kept = {"type": view.query("type")} if view.query("type") else {}
    return {
        "id": name,
        "failure": found[0] if found else None,
        "batch": min(found[0].number, MAX_AT_ONCE) if found else 0,
        "most": MAX_AT_ONCE,
        "type": view.query("type"),
        "tasks": page.items,
        "first": f"?{urlencode(kept)}" if cursor else None,
        "next": f"?{urlencode({**kept, 'cursor': page.cursor})}" if page.cursor else None,
    }


@failures.action("/failures/{failure}/replay")
async def replay(view: View) -> Done:
    """Replay all dead letters of a failure: at once, or spread over some minutes."""
    where = _where(view.path("failure"), view.field("type"))
    minutes = number_of(view.field("minutes"), "minutes") if view.field("pace") == "spread" else None
    spread = {"spread": minutes * 60} if minutes else {}
    body = {"where": where, "limit": MAX_AT_ONCE, "why": view.why, **spread}
    done = await view.call(replay_dead, body=body)
    over = f", one after another over {minutes:g} minutes" if minutes else ""
    return Done(f"{_tasks_were(done.number)} replayed{over}.", _page(view))


@failures.action("/failures/{failure}/discard")
async def discard(view: View) -> Done:
    """Discard as many dead letters of a failure as were confirmed, the oldest ones."""
    number = view.field("number")
    if not number.isdecimal() or not 0 < int(number) <= MAX_AT_ONCE:
        raise Problem("invalid-request", "number must be a number of tasks; reload the page and retry")
    if view.field("typed").replace(",", "") != number:
        raise Problem("invalid-request", f"type {number} to confirm; nothing was discarded")
    where = _where(view.path("failure"), view.field("type"))
    done = await view.call(discard_dead, body={"where": where, "limit": int(number), "why": view.why})
    return Done(f"{_tasks_were(done.number)} discarded.", _page(view))


def _where(failure: str, type_name: str) -> dict[str, Any]:
    """Return the API's filter for the dead letters of a failure."""
    of_type = {"type": [type_name]} if type_name else {}
    return {"failure": ["" if failure == UNKNOWN else failure], **of_type}


def _page(view: View) -> str:
    kept = f"?{urlencode({'type': type_name})}" if (type_name := view.field("type")) else ""
    return f"failures/{view.path('failure')}{kept}"


def _tasks_were(number: int) -> str:
    return f"{counted(number, 'task')} {'was' if number == 1 else 'were'}"
