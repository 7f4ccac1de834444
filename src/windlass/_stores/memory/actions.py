"""Operator actions on tasks with their audit entries."""

from datetime import datetime
from typing import assert_never

from msgspec.structs import asdict, replace

from ..._model.filter import (
    Action,
    CancelTasks,
    Discard,
    Expire,
    Replay,
    Reveal,
    Rewrite,
    Trigger,
    documents_of,
)
from ..._model.options import by_name_or_alias
from ..._model.queue import Retention
from ..._model.record import Archive
from ..._model.state import ENDED, PENDING, State, Verb
from ..._model.task import Task, TaskId
from ..._model.transition import Applied, transition_of
from ..rules import cancellation
from ..rules.audit import audited, audited_rewrite
from ..rules.retention import archived
from .tables import Tables


def act(tables: Tables, action: Action, task: Task, now: datetime, number: int) -> bool:
    """Apply an action if the task's state permits it, and audit it; return whether it was applied.

    `number` is to how many tasks it was applied before.
    """
    applied = _apply(tables, action, task, now, number)
    if applied and not isinstance(action, Expire):
        declared = by_name_or_alias(tables.types).get(task.type) if isinstance(action, Discard) else None
        tables.audits.append(audited(action, task, now, declared, number))
    return applied


def rewrite(tables: Tables, action: Rewrite, now: datetime) -> Applied:
    """Replace the documents of tasks that still have those that are expected, and audit it."""
    done: list[TaskId] = []
    for one in action.tasks:
        task = tables.tasks.get(one.id)
        if task is not None and documents_of(task) == one.before:
            tables.keep(replace(task, **asdict(one.after)))
            done.append(one.id)
    tables.audits += audited_rewrite(action, len(done), now)
    return Applied(ids=tuple(done))


def _apply(tables: Tables, action: Action, task: Task, now: datetime, number: int) -> bool:
    match action:
        case CancelTasks(by=by):
            if task.state in PENDING:
                tables.cancel_pending(task, now, cancellation.by_operator(by))
            elif task.state is State.RUNNING and not task.cancel_requested:
                tables.keep(replace(task, cancel_requested=True, **cancellation.asked_by(by)))
            return task.state not in ENDED
        case Expire():
            if task.state not in PENDING or not task.is_expired(now):
                return False
            tables.cancel_pending(task, now, cancellation.expired(task))
            return True
        case Reveal() | Trigger():
            return True
        case Rewrite():
            return False
        case Replay():
            return tables.replay(task, action, action.due_at(number, now), now)
        case Discard(by=by):
            if task.state is not State.DEAD:
                return False
            tables.abandon(task.id, now, cancellation.discarded(by))
            tables.forget(task)
            tables.transitions.append(transition_of(Verb.DISCARD, task))
            return True
        case _:
            assert_never(action)


def finished_before(task: Task, retention: Retention, archive: Archive | None, now: datetime) -> bool:
    """Whether the task has passed its retention, and was archived if archiving is on."""
    horizon = archived(retention.horizon(task.state, now), archive)
    return horizon is not None and task.finished_at is not None and task.finished_at < horizon
