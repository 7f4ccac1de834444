"""Enqueue a task by a form, empty or filled in from another task."""

from collections.abc import Mapping
from typing import Any

from ..._http.resources.enqueue import enqueue as enqueue_task
from ..._http.resources.events import get_overview
from ..._http.resources.task_types import list_types
from ..._http.resources.tasks import get_task
from ..._http.web.problems import Problem
from ..._model.key import Scope
from ..._policy.input.options import parse_duration
from ..._policy.secrets.fields import MASK
from ..page import Done, Pages
from ..view import View
from .task import pretty, read_payload

enqueue = Pages()

FIELDS = ("type", "queue", "tenant", "payload", "delay", "priority", "idempotency_key")


@enqueue.screen("/enqueue", "enqueue.html", "Enqueue a task", scope=Scope.ENQUEUE, bound=True, live=False)
async def show_form(view: View) -> Mapping[str, Any]:
    """Show the form: what was sent, a copy of a task, or the parameters of the URL."""
    values = {name: view.field(name) if view.form else view.query(name) for name in FIELDS}
    copied = view.query("copy")
    if copied and not view.form:
        task = await view.call(get_task, id=copied)
        values |= {"type": task.type, "queue": task.queue, "tenant": task.tenant}
        values |= {"payload": pretty(task.payload), "priority": str(task.priority) if task.priority else ""}
    types = (await view.call(list_types)).items if view.may_call(list_types) else []
    overview = await view.soon(view.call(get_overview)) if view.may("read") else None
    return {
        "values": values | {"payload": values["payload"] or "{}"},
        "types": types,
        "queues": [one.queue for one in (overview.queues if overview else [])],
        "is_masked": MASK in values["payload"],
        "copied": copied,
    }


@enqueue.action("/enqueue", form="/enqueue")
async def send(view: View) -> Done:
    """Enqueue the task."""
    body: dict[str, Any] = {
        "type": view.field("type"),
        "payload": read_payload(view.field("payload") or "{}"),
    }
    body |= {name: view.field(name) for name in ("queue", "tenant", "idempotency_key") if view.field(name)}
    if delay := view.field("delay"):
        body["delay"] = parse_duration(delay, "delay").total_seconds()
    if priority := view.field("priority"):
        body["priority"] = _priority(priority)
    made = await view.call(enqueue_task, body=body)
    text = "The task is enqueued." if made.created else "A task with this idempotency key exists: this one."
    return Done(text, f"tasks/{made.id}")


def _priority(text: str) -> int | str:
    if text in ("high", "medium", "low"):
        return text
    try:
        return int(text[:20])
    except ValueError:
        raise Problem(
            "invalid-option", "priority must be a number from -100 to 100, high, medium or low"
        ) from None
