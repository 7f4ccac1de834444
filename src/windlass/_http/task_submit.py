"""Handing tasks in for a caller: a repeat is answered as the first time; of others' tasks nothing is told."""

from collections.abc import Sequence
from typing import Any

from .._model.filter import Filter, Page
from .._model.task import NewTask, Task, TaskId
from .._policy.input.chain import all_ids, decode_steps
from ..errors import DuplicateTask, IdempotencyConflict
from .operation import Asked
from .task_input import Enqueued, RequestKey
from .web.problems import Problem


async def handed_in(
    asked: Asked[Any, Any], batch: Sequence[NewTask], key: RequestKey | None
) -> tuple[list[Enqueued], bool]:
    """Enqueue all or none; and whether the request as a whole is a repeat."""
    if key is not None:
        batch = key.on(batch)
    try:
        handles = await asked.service.app.client.enqueue_tasks(batch)
    except (DuplicateTask, IdempotencyConflict) as error:
        if error.standing in await _seen(asked, [error.standing]):
            raise
        status = 409 if isinstance(error, DuplicateTask) else 422
        raise Problem(status, error.code, "an equal task, or this key, stands beyond your bounds") from None
    stood = [handle.id for handle in handles if not handle.created]
    seen = await _seen(asked, stood) if stood else {}
    is_repeat = key is not None and bool(stood)
    return [
        Enqueued(id=handle.id, created=True, following=list(handle.following))
        if handle.created
        else _standing(handle.id, seen.get(handle.id), created=is_repeat)
        for handle in handles
    ], is_repeat


def _standing(task_id: TaskId, task: Task | None, *, created: bool) -> Enqueued:
    """A task that stood already. Its key may have outlived its record."""
    following = () if task is None else all_ids(decode_steps(task.next))
    return Enqueued(id=task_id, created=created, following=list(following))


async def _seen(asked: Asked[Any, Any], ids: Sequence[TaskId]) -> dict[TaskId, Task]:
    """Those of these tasks that the caller may see."""
    found: dict[TaskId, Task] = {}
    for start in range(0, len(ids), 1_000):
        part = tuple(ids[start : start + 1_000])
        page = await asked.service.app.operator.find(
            asked.caller.sees(Filter(ids=part)), Page(limit=len(part))
        )
        found |= {task.id: task for task in page.items}
    return found
