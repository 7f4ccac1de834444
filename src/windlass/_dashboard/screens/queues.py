"""Queues: how deep, how old, who serves them; pause, resume and remove them."""

import asyncio
from collections.abc import Mapping
from operator import add
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from ..._documents.queues import QueueDocument, QueueOrder, QueueTypes
from ..._documents.workers import WorkerDocument
from ..._http.resources.history import get_history, list_type_history
from ..._http.resources.limits import list_limits
from ..._http.resources.queues import (
    MAX_NAME,
    get_queue,
    list_queue_tenants,
    list_queue_types,
    list_queues,
    pause_queue,
    remove_queue,
    resume_queue,
    set_queue,
)
from ..._http.resources.work import list_workers
from ..._http.web.problems import Problem
from ..._model.queue import Level
from ..charts import PERIODS, backlog, chosen_period, throughput
from ..page import Done, Pages
from ..queue_fields import ENDED_STATES, FAIRNESS, setting_changes, setting_facts, setting_fields
from ..view import View
from .limits import LimitRow, limit_row

queues = Pages()

MAX_ROWS = 200
"""Queues on the page; with more, people search for one by name."""

MAX_TYPES = 100
"""Task types on the page of a queue; of more, the ones whose tasks have been ready for longest."""

RECENT = 2
"""Parts of the last hour, of 2.5 minutes each, that tell how many tasks complete in a minute now."""


class Rate(Struct, frozen=True, kw_only=True):
    """Completed tasks of a queue: how many a minute, and in each part of the last hour."""

    per_minute: float
    parts: list[int]


@queues.screen("/queues", "queues.html", "Queues", bound=True)
async def show_queues(view: View) -> Mapping[str, Any]:
    """List queues, by name or the worst first."""
    name, order = view.query("name")[:MAX_NAME], view.query("order", QueueOrder.NAME)
    if order not in [*QueueOrder]:
        order = QueueOrder.NAME
    found = await view.call(list_queues, query={"name": name, "order": order, "limit": MAX_ROWS})
    return {
        "queues": found.items,
        "unserved": [queue.queue for queue in found.items if is_unserved(queue)],
        "rates": await _rates(view),
        "number": found.number,
        "any": bool(found.items or name),
        "name": name,
        "order": order,
    }


@queues.screen("/queues/{queue}", "queue.html", "Queue", bound=True)
async def show_queue(view: View) -> Mapping[str, Any]:
    """Show one queue."""
    name = view.path("queue")
    worst = {"order": QueueOrder.OLDEST, "limit": MAX_TYPES}
    queue, found = await asyncio.gather(
        view.call(get_queue, queue=name), view.call(list_queue_types, query=worst, queue=name)
    )
    types = sorted(found.items, key=lambda one: one.type)
    tenants, history, workers, limits = await asyncio.gather(
        view.soon(view.call(list_queue_tenants, queue=name)),
        _history(view, name),
        _workers(view, name),
        _limits(view, queue, found),
    )
    return {
        "queue": queue,
        "is_unserved": is_unserved(queue),
        "is_unused": not any(queue.counts.values()) and queue.workers == 0,
        "types": types,
        "more_types": found.number - len(types),
        "tenants": tenants,
        "history": history,
        "workers": workers,
        "limits": limits,
        "facts": setting_facts(queue),
    }


@queues.action("/queues/{queue}/pause")
async def pause(view: View) -> Done:
    """Pause a queue."""
    queue = view.path("queue")
    await view.call(pause_queue, query={"why": view.why}, queue=queue)
    return Done(f"Queue {queue} is paused.", queue_page(queue))


@queues.action("/queues/{queue}/resume")
async def resume(view: View) -> Done:
    """Resume a queue."""
    queue = view.path("queue")
    await view.call(resume_queue, query={"why": view.why}, queue=queue)
    return Done(f"Queue {queue} is resumed.", queue_page(queue))


@queues.action("/queues/{queue}/remove")
async def remove(view: View) -> Done:
    """Remove a queue that is not used."""
    queue = view.path("queue")
    await view.call(remove_queue, query={"why": view.why}, queue=queue)
    return Done(f"Queue {queue} is removed.", "queues")


@queues.screen(
    "/queues/{queue}/settings", "queue-settings.html", "Settings of a queue", bound=True, live=False
)
async def show_settings(view: View) -> Mapping[str, Any]:
    """Show the form, filled with the settings as they are, or with what was sent."""
    queue = await view.call(get_queue, queue=view.path("queue"))
    if queue.settings is None:
        raise Problem("forbidden", "this key is bound to a tenant; queues are shared by all tenants")
    return {
        "queue": queue,
        "fields": {name: view.field(name, text) for name, text in setting_fields(queue.settings).items()},
        "fairness": {kind.value: text for kind, text in FAIRNESS.items()},
        "levels": [level.value for level in Level],
        "states": ENDED_STATES,
    }


@queues.action("/queues/{queue}/settings", form="/queues/{queue}/settings")
async def change_settings(view: View) -> Done:
    """Change the settings of a queue as the form says."""
    name = view.path("queue")
    before = (await view.call(get_queue, queue=name)).settings
    assert before is not None or view.caller.tenant is not None
    changes = {} if before is None else setting_changes(view, before)
    await view.call(set_queue, body={**changes, "why": view.why}, queue=name)
    return Done(f"The settings of queue {name} are changed.", queue_page(name))


def queue_page(queue: str) -> str:
    """Return the page of a queue."""
    return f"queues/{quote(queue, safe='')}"


def is_unserved(queue: QueueDocument) -> bool:
    """Tell whether tasks of a queue wait although no live worker serves it, and nobody has paused it."""
    return queue.workers == 0 and not queue.paused and sum(queue.counts.values()) > queue.counts["dead"]


async def _history(view: View, queue: str) -> Mapping[str, Any] | None:
    """Return charts of the chosen period; None for keys of a tenant: history is not kept by tenant."""
    if view.caller.tenant is not None:
        return None
    period = chosen_period(view.query("period"))
    history = await view.call(get_history, query={"period": period, "queue": queue})
    return {
        "period": period,
        "periods": PERIODS,
        "throughput": throughput(history),
        "backlog": backlog(history),
    }


async def _rates(view: View) -> dict[str, Rate]:
    """Return how many tasks of each queue completed in the last hour; none for keys of a tenant."""
    if view.caller.tenant is not None:
        return {}
    found: dict[str, Rate] = {}
    for one in (await view.call(list_type_history, query={"period": "1h"})).items:
        before = found.get(one.queue)
        parts = one.completed if before is None else [*map(add, before.parts, one.completed)]
        found[one.queue] = Rate(per_minute=round(sum(parts[-RECENT:]) / (RECENT * 2.5), 1), parts=parts)
    return found


async def _workers(view: View, queue: str) -> list[WorkerDocument] | None:
    """Return the live workers that serve a queue; None: the caller may not see them."""
    if not view.may_call(list_workers):
        return None
    found = (await view.call(list_workers)).items
    return [
        worker
        for worker in found
        if worker.alive and not worker.keeper and (worker.all_queues or queue in worker.queues)
    ]


async def _limits(view: View, queue: QueueDocument, types: QueueTypes) -> list[LimitRow] | None:
    """Return the limits on tasks that this queue may have; None: the caller may not see them.

    Those on any type are among them if the queue has more types than are known.
    """
    if not view.may_call(list_limits):
        return None
    names = {one.type for one in types.items}
    is_whole = types.number == len(names)
    return [
        limit_row(limit)
        for limit in (await view.call(list_limits)).items
        if limit.queue in (None, queue.queue) and (limit.type is None or limit.type in names or not is_whole)
    ]
