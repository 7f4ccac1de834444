"""Queues: how deep, how old, who serves them; pause, resume and remove them."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ..._documents.queues import QueueDocument, QueueTenants, QueueTypeDocument
from ..._documents.workers import WorkerDocument
from ..._http.resources.limits import list_limits
from ..._http.resources.queues import (
    get_queue,
    list_queue_tenants,
    list_queue_types,
    list_queues,
    pause_queue,
    remove_queue,
    resume_queue,
)
from ..._http.resources.work import list_workers
from ..page import Done, Pages
from ..view import View
from .limits import LimitRow, limit_row
from .queue_settings import setting_facts

queues = Pages()

MAX_ROWS = 200
"""Queues on the page; with more, people search for one by name."""

PATIENCE = 0.15
"""Seconds that the page of a queue waits for the number of tasks of each tenant."""

_ORDERS = {
    "name": lambda queue: queue.queue,
    "ready": lambda queue: (-queue.counts["ready"], queue.queue),
    "oldest": lambda queue: (-queue.oldest_ready, queue.queue),
    "dead": lambda queue: (-queue.counts["dead"], queue.queue),
}


@queues.screen("/queues", "queues.html", "Queues", bound=True)
async def show_queues(view: View) -> Mapping[str, Any]:
    """List queues, by name or the worst first."""
    name, order = view.query("name"), view.query("order", "name")
    found = (await view.call(list_queues)).items
    matching = [queue for queue in found if name.casefold() in queue.queue.casefold()]
    matching.sort(key=_ORDERS.get(order, _ORDERS["name"]))
    return {
        "queues": matching[:MAX_ROWS],
        "unserved": [queue.queue for queue in matching[:MAX_ROWS] if is_unserved(queue)],
        "number": len(matching),
        "any": bool(found),
        "name": name,
        "order": order if order in _ORDERS else "name",
    }


@queues.screen("/queues/{queue}", "queue.html", "Queue", bound=True)
async def show_queue(view: View) -> Mapping[str, Any]:
    """Show one queue."""
    name = view.path("queue")
    queue = await view.call(get_queue, queue=name)
    types = (await view.call(list_queue_types, queue=name)).items
    return {
        "queue": queue,
        "is_unserved": is_unserved(queue),
        "is_unused": not any(queue.counts.values()) and queue.workers == 0,
        "types": types,
        "tenants": await _tenants(view, name),
        "workers": await _workers(view, name),
        "limits": await _limits(view, queue, types),
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


def queue_page(queue: str) -> str:
    """Return the page of a queue."""
    return f"queues/{quote(queue, safe='')}"


def is_unserved(queue: QueueDocument) -> bool:
    """Tell whether tasks of a queue wait although no live worker serves it, and nobody has paused it."""
    return queue.workers == 0 and not queue.paused and sum(queue.counts.values()) > queue.counts["dead"]


async def _tenants(view: View, queue: str) -> QueueTenants | None:
    """Return the tenants of a queue; None while they are being counted, so that the page need not wait."""
    counted = asyncio.ensure_future(view.call(list_queue_tenants, queue=queue))
    done, _ = await asyncio.wait({counted}, timeout=PATIENCE)
    if not done:
        counted.add_done_callback(lambda late: late.cancelled() or late.exception())  # asyncio would log it
        return None
    return counted.result()


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


async def _limits(view: View, queue: QueueDocument, types: list[QueueTypeDocument]) -> list[LimitRow] | None:
    """Return the limits on tasks that this queue may have; None: the caller may not see them."""
    if not view.may_call(list_limits):
        return None
    names = {one.type for one in types}
    return [
        limit_row(limit)
        for limit in (await view.call(list_limits)).items
        if limit.queue in (None, queue.queue) and (limit.type is None or limit.type in names)
    ]
