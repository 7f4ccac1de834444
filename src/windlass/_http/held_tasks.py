"""Which leases are a caller's own: what others hold is nothing to him."""

from collections.abc import Iterable
from typing import Any

from .._model.filter import MAX_PAGE, Filter, Page
from .._model.task import Task, TaskId
from .operation import Asked


async def own_tasks(asked: Asked[Any, Any], ids: Iterable[TaskId]) -> dict[TaskId, Task]:
    """Those of these tasks that the caller may settle. A key that is bound settles what it claimed itself."""
    wanted = tuple(dict.fromkeys(ids))
    found: dict[TaskId, Task] = {}
    for start in range(0, len(wanted), MAX_PAGE):
        part = wanted[start : start + MAX_PAGE]
        page = await asked.service.store.find(asked.caller.sees(Filter(ids=part)), Page(limit=len(part)))
        found |= {task.id: task for task in page.items if _is_own(asked, task)}
    return found


def _is_own(asked: Asked[Any, Any], task: Task) -> bool:
    return not asked.caller.is_bound or task.session is None or task.session.startswith(asked.caller.mark)
