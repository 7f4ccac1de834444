"""What an operator does to a task, and the line in the audit log that says so."""

from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from ..._model.filter import Action, CancelTasks, Discard, Replay
from ..._model.state import ENDED, PENDING, State
from ..._model.task import Task
from ..rules.audit import audited
from .shelf import Shelf


def act(shelf: Shelf, action: Action, task: Task, now: datetime) -> bool:
    """Do it if the task's state allows it, and audit it; says whether it was done."""
    done = _do(shelf, action, task, now)
    if done:
        shelf.audits.append(audited(action, task.id, now))
    return done


def _do(shelf: Shelf, action: Action, task: Task, now: datetime) -> bool:
    match action:
        case CancelTasks(by=by):
            if task.state in PENDING:
                shelf.cancel_pending(task, now, by.why or f"cancelled by {by.who}")
            elif task.state is State.RUNNING:
                shelf.keep(replace(task, cancel_requested=True))
            return task.state not in ENDED
        case Replay(payload=payload):
            return shelf.replay(task, payload, now)
        case Discard():
            if task.state is not State.DEAD:
                return False
            shelf.abandon(task.id, now, "died and was discarded")
            shelf.forget(task)
            return True
        case _:
            assert_never(action)
