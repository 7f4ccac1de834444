"""Run a ready-made handler's task to its end, and see what became of it."""

from typing import Any

from tests.loops.workers import drained
from windlass import App, Task, TaskType
from windlass._model.attempt import Attempt

LOOPBACK = ("127.0.0.1",)


def new_app(**options: Any) -> App:
    """An app whose handlers may reach the loopback."""
    return App(**{"store": "memory://", "allow_addresses": LOOPBACK} | options)


async def run(task_type: TaskType[..., Any, Any], app: App, **payload: Any) -> Task:
    """Enqueue a task, run what is ready, and return the task."""
    handle = await task_type.aenqueue(**payload)
    await drained(app)
    return await app.operator.task(handle.id)


async def attempts(app: App, task: Task) -> list[Attempt]:
    return [*await app.operator.attempts(task.id)]
