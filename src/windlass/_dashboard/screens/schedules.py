"""Schedules: their rules, the next and the last ticks; add, change, pause, run and remove them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import msgspec

from ..._documents.schedules import ScheduleDocument, Ticks
from ..._http.resources.schedules import (
    change_schedule,
    get_schedule,
    list_past_ticks,
    list_schedules,
    list_ticks,
    pause_schedule,
    put_schedule,
    remove_schedule,
    resume_schedule,
    trigger_schedule,
)
from ..._http.web.problems import Problem
from ..._model.schedule import Missed, Overlap
from ...errors import InvalidOption
from ..form_fields import duration_field, seconds_of, whole_of
from ..page import Done, Pages
from ..view import View

schedules = Pages()

MAX_ROWS = 500
NEXT = 5
LAST = 10

_MISSED = {
    Missed.SKIP: "Are dropped",
    Missed.ONCE: "Run once, together",
    Missed.ALL: "Run each, up to a number",
}
_OVERLAP = {
    Overlap.ALLOW: "Ticks run side by side",
    Overlap.SKIP: "A tick is skipped while a task is open",
}
_DURATIONS = ("jitter", "timeout", "expires")
_NUMBERS = ("at_most", "priority", "max_attempts")


@schedules.screen("/schedules", "schedules.html", "Schedules")
async def show_schedules(view: View) -> Mapping[str, Any]:
    """List schedules, by name."""
    found = (await view.call(list_schedules)).items
    name = view.query("name")
    matching = [one for one in found if name.casefold() in one.name.casefold()]
    return {"schedules": matching[:MAX_ROWS], "number": len(matching), "any": bool(found), "name": name}


@schedules.screen("/schedules/{name}", "schedule.html", "Schedule")
async def show_schedule(view: View) -> Mapping[str, Any]:
    """Show one schedule."""
    name = view.path("name")
    schedule = await view.call(get_schedule, name=name)
    ticks, past = Ticks(items=[]), []
    if schedule.error is None:
        ticks = await view.call(list_ticks, query={"number": NEXT}, name=name)
        past = (await view.call(list_past_ticks, query={"number": LAST}, name=name)).items
    return {
        "schedule": schedule,
        "next": [(tick, _local(tick, schedule)) for tick in ticks.items],
        "past": [(tick, _local(tick.at, schedule)) for tick in past],
        "missed": _MISSED[schedule.missed],
        "overlap": _OVERLAP[schedule.overlap],
    }


@schedules.screen("/schedules/-/add", "schedule-form.html", "Add a schedule", live=False)
async def show_add(view: View) -> Mapping[str, Any]:
    """Show the form of a new schedule; no schedule can be named "-"."""
    return _form(view, {"rule": "0 3 * * *", "payload": "{}", "missed": "skip", "overlap": "allow"})


@schedules.screen("/schedules/{name}/change", "schedule-form.html", "Change a schedule", live=False)
async def show_change(view: View) -> Mapping[str, Any]:
    """Show the form, filled with the schedule as it is, or with what was sent."""
    schedule = await view.call(get_schedule, name=view.path("name"))
    return {**_form(view, _fields(schedule)), "schedule": schedule}


@schedules.action("/schedules/-/add", form="/schedules/-/add")
async def add(view: View) -> Done:
    """Add a schedule. One of the same name is not replaced."""
    name = view.field("name")
    if name in {one.name for one in (await view.call(list_schedules)).items}:
        raise Problem("invalid-option", f"there is already a schedule {name}; choose another name")
    body = {**_given(view, is_new=True), "type": view.field("type"), "why": view.why}
    await view.call(put_schedule, body=body, name=name)
    return Done(f"Schedule {name} is added.", schedule_page(name))


@schedules.action("/schedules/{name}/change", form="/schedules/{name}/change")
async def change(view: View) -> Done:
    """Change a schedule as the form says; a payload that was not edited stays, with its secrets."""
    name = view.path("name")
    before = _fields(await view.call(get_schedule, name=name))
    body = _given(view)
    if view.field("payload").split() == before["payload"].split():
        del body["payload"]
    await view.call(change_schedule, body={**body, "why": view.why}, name=name)
    return Done(f"Schedule {name} is changed.", schedule_page(name))


@schedules.action("/schedules/{name}/pause")
async def pause(view: View) -> Done:
    """Pause a schedule."""
    name = view.path("name")
    await view.call(pause_schedule, query={"why": view.why}, name=name)
    return Done(f"Schedule {name} is paused.", schedule_page(name))


@schedules.action("/schedules/{name}/resume")
async def resume(view: View) -> Done:
    """Resume a schedule."""
    name = view.path("name")
    await view.call(resume_schedule, query={"why": view.why}, name=name)
    return Done(f"Schedule {name} is resumed.", schedule_page(name))


@schedules.action("/schedules/{name}/run")
async def run(view: View) -> Done:
    """Enqueue the task of a schedule now."""
    name = view.path("name")
    task = await view.call(trigger_schedule, query={"why": view.why}, name=name)
    return Done(f"Task {task.id} is enqueued.", schedule_page(name))


@schedules.action("/schedules/{name}/remove")
async def remove(view: View) -> Done:
    """Remove a schedule."""
    name = view.path("name")
    await view.call(remove_schedule, query={"why": view.why}, name=name)
    return Done(f"Schedule {name} is removed.", "schedules")


def schedule_page(name: str) -> str:
    """Return the page of a schedule."""
    return f"schedules/{quote(name, safe='')}"


def _local(tick: datetime, schedule: ScheduleDocument) -> str:
    """Return a tick by the clock of the schedule's time zone."""
    return f"{tick.astimezone(ZoneInfo(schedule.zone)):%a %d %b %Y, %H:%M:%S %Z}"


def _form(view: View, texts: Mapping[str, str]) -> dict[str, Any]:
    names = ("name", "type", "rule", "zone", "payload", "missed", "overlap", "queue", "tenant")
    return {
        "schedule": None,
        "fields": {name: view.field(name, texts.get(name, "")) for name in (*names, *_NUMBERS, *_DURATIONS)},
        "missed": {kind.value: text for kind, text in _MISSED.items()},
        "overlap": {kind.value: text for kind, text in _OVERLAP.items()},
    }


def _fields(schedule: ScheduleDocument) -> dict[str, str]:
    """Return the text of each field of the form."""
    payload = msgspec.json.format(msgspec.json.encode(schedule.payload), indent=2).decode()
    return {
        "name": schedule.name,
        "type": schedule.type,
        "rule": schedule.cron or duration_field(schedule.every),
        "zone": schedule.zone if schedule.cron else "",
        "payload": payload,
        "missed": schedule.missed.value,
        "overlap": schedule.overlap.value,
        "queue": schedule.queue,
        "tenant": schedule.tenant,
        **{name: str(getattr(schedule, name)) for name in _NUMBERS},
        **{name: duration_field(getattr(schedule, name)) for name in _DURATIONS},
    }


def _given(view: View, *, is_new: bool = False) -> dict[str, Any]:
    """Return the fields of the form as the API takes them.

    Durations that are empty are null; in a new schedule they are left out, as the type has defaults.
    """
    body: dict[str, Any] = {name: view.field(name) for name in ("rule", "missed", "overlap")}
    body |= {name: view.field(name) for name in ("queue", "tenant") if view.field(name)}
    body["zone"] = view.field("zone") or "UTC"
    body["payload"] = _payload(view.field("payload"))
    for name in _NUMBERS:
        if (number := whole_of(view.field(name), name)) is not None:
            body[name] = number
    for name in _DURATIONS:
        seconds = seconds_of(view.field(name), name)
        if seconds is not None or not is_new:
            body[name] = 0 if seconds is None and name == "jitter" else seconds
    return body


def _payload(text: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(f"the payload is not JSON: {error}") from None
    return msgspec.Raw((text or "{}").encode())
