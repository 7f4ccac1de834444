"""Workers: who runs tasks, with how many slots, and what; and the keeper."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ..._documents.tasks import TaskDocument
from ..._documents.workers import WorkerDocument
from ..._http.resources.tasks import list_tasks
from ..._http.resources.work import list_workers
from ..._model.state import State
from ..page import Pages
from ..view import View

workers = Pages()

MAX_ROWS = 200
MAX_TASKS = 100
"""Running tasks that are read; each is shown beside its worker."""


@workers.screen("/workers", "workers.html", "Workers")
async def show_workers(view: View) -> Mapping[str, Any]:
    """List workers, those whose sessions have expired first."""
    name = view.query("name")
    found = (await view.call(list_workers)).items
    matching = [worker for worker in found if not worker.keeper and _matches(worker, name.casefold())]
    matching.sort(key=lambda worker: (worker.alive, worker.name, worker.session))
    alive = [worker for worker in found if worker.alive and not worker.keeper]
    running = (await view.call(list_tasks, query={"state": [State.RUNNING], "limit": MAX_TASKS})).items
    return {
        "workers": matching[:MAX_ROWS],
        "number": len(matching),
        "any": any(not worker.keeper for worker in found),
        "alive": len(alive),
        "slots": sum(worker.slots for worker in alive),
        "busy": sum(min(worker.busy, worker.slots) for worker in alive),
        "stuck": sum(len(worker.stuck) for worker in alive),
        "keeper": next((worker for worker in found if worker.keeper and worker.alive), None),
        "tasks": _by_worker(running),
        "is_cut": len(running) == MAX_TASKS,
        "name": name,
    }


def _matches(worker: WorkerDocument, text: str) -> bool:
    return any(text in part.casefold() for part in (worker.name, worker.host, *worker.queues))


def _by_worker(tasks: list[TaskDocument]) -> dict[str, list[TaskDocument]]:
    found: dict[str, list[TaskDocument]] = defaultdict(list)
    for task in tasks:
        if task.worker is not None:
            found[task.worker].append(task)
    return found
