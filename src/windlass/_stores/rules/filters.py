"""Whether a task matches a filter, for stores that have no query language."""

from datetime import datetime

from ..._model.filter import Filter
from ..._model.task import Task


def matches(task: Task, where: Filter) -> bool:
    """Whether the task matches every field of the filter that is set."""
    finished = task.finished_at
    return (
        (where.ids is None or task.id in where.ids)
        and (where.states is None or task.state in where.states)
        and (where.types is None or task.type in where.types)
        and (where.queues is None or task.queue in where.queues)
        and (where.tenants is None or task.tenant in where.tenants)
        and (where.root is None or task.root == where.root)
        and (not where.chained or task.next is not None or task.root != task.id)
        and (where.idempotency_key is None or task.idempotency_key == where.idempotency_key)
        and (where.error is None or _mentions(task, where.error))
        and (where.failures is None or (task.failure or "") in where.failures)
        and (where.created_after is None or task.created_at >= where.created_after)
        and (where.created_before is None or task.created_at < where.created_before)
        and (where.finished_after is None or (finished is not None and finished >= where.finished_after))
        and (where.finished_before is None or (finished is not None and finished < where.finished_before))
        and (where.expires_before is None or _expires(task, where.expires_before))
    )


def _expires(task: Task, before: datetime) -> bool:
    return task.expires_at is not None and task.expires_at < before and task.attempt == 0


def _mentions(task: Task, text: str) -> bool:
    error = task.error
    return error is not None and (text.lower() in error.type.lower() or text.lower() in error.message.lower())
