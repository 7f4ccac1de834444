"""Queues: how deep, how old, who serves them; pause and resume."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ..._http.resources.queues import get_queue, list_queues, pause_queue, resume_queue
from ..page import Done, Pages
from ..view import View

queues = Pages()


@queues.screen("/queues", "queues.html", "Queues", bound=True)
async def show_queues(view: View) -> Mapping[str, Any]:
    """List all queues."""
    return {"queues": (await view.call(list_queues)).items}


@queues.screen("/queues/{queue}", "queue.html", "Queue", bound=True)
async def show_queue(view: View) -> Mapping[str, Any]:
    """Show one queue."""
    return {"queue": await view.call(get_queue, queue=view.path("queue"))}


@queues.action("/queues/{queue}/pause")
async def pause(view: View) -> Done:
    """Pause a queue."""
    queue = view.path("queue")
    await view.call(pause_queue, query={"why": view.why}, queue=queue)
    return Done(f"Queue {queue} is paused.", f"queues/{quote(queue, safe='')}")


@queues.action("/queues/{queue}/resume")
async def resume(view: View) -> Done:
    """Resume a queue."""
    queue = view.path("queue")
    await view.call(resume_queue, query={"why": view.why}, queue=queue)
    return Done(f"Queue {queue} is resumed.", f"queues/{quote(queue, safe='')}")
