"""Which rows a filter means, and which retention no longer covers, spelled out over one task."""

from datetime import datetime

from ..._model.filter import Filter
from ..._model.queue import Retention
from ..._model.task import Task


def matches(task: Task, where: Filter) -> bool:
    """Whether every field of the filter that is set fits the task."""
    return (
        (where.ids is None or task.id in where.ids)
        and (where.states is None or task.state in where.states)
        and (where.types is None or task.type in where.types)
        and (where.queues is None or task.queue in where.queues)
        and (where.tenants is None or task.tenant in where.tenants)
        and (where.root is None or task.root == where.root)
        and (where.idempotency_key is None or task.idempotency_key == where.idempotency_key)
        and (where.error is None or _mentions(task, where.error))
        and (where.created_after is None or task.created_at >= where.created_after)
        and (where.created_before is None or task.created_at < where.created_before)
        and _finished_within(task, where)
    )


def _finished_within(task: Task, where: Filter) -> bool:
    if where.finished_after is None and where.finished_before is None:
        return True
    return (
        task.finished_at is not None
        and (where.finished_after is None or task.finished_at >= where.finished_after)
        and (where.finished_before is None or task.finished_at < where.finished_before)
    )


def _mentions(task: Task, text: str) -> bool:
    error = task.error
    return error is not None and (text.lower() in error.type.lower() or text.lower() in error.message.lower())


def finished_before(task: Task, retention: Retention, now: datetime) -> bool:
    """Whether the task ended so long ago that its record may go."""
    horizon = retention.horizon(task.state, now)
    return horizon is not None and task.finished_at is not None and task.finished_at < horizon
