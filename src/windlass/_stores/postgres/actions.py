"""What an operator does to tasks, and the lines in the audit log that say so."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from ..._model.filter import Action, CancelTasks, Discard, Replay
from ..._model.state import PENDING
from ..._model.task import Task, TaskId
from ..rules.audit import allowing, audited
from ..rules.transitions import replayed
from . import audit as auditing
from .script import Script, ask, value
from .successors import abandon, cancel_pending
from .unit_of_work import UnitOfWork


def apply(clock: datetime | None, action: Action, ids: Sequence[TaskId], limit: int) -> Script[list[TaskId]]:
    """Do it to those of these that still allow it, oldest first, and audit it."""
    work = UnitOfWork((yield from value("now", clock)))
    yield from work.load(ids)
    if isinstance(action, Replay):
        yield from work.load_cancelled(ids)
    states, standing = allowing(action), set[str]()
    done: list[Task] = []
    for task_id in ids:
        if len(done) >= limit:
            break
        # An earlier one's cancellation may have changed this one.
        task = work.get(task_id)
        if task is not None and task.state in states and (yield from _do(work, action, task, standing)):
            done.append(task)
    yield from work.flush()
    if isinstance(action, Discard) and done:
        gone = [task.id for task in done]
        yield from ask("forget", gone)
        yield from ask("forget_about", gone)
    if done:
        yield from auditing.write([audited(action, task.id, work.now) for task in done])
    yield from work.wake()
    return [task.id for task in done]


def _do(work: UnitOfWork, action: Action, task: Task, standing: set[str]) -> Script[bool]:
    match action:
        case CancelTasks(by=by):
            if task.state in PENDING:
                yield from cancel_pending(work, task, by.why or f"cancelled by {by.who}")
            else:
                work.keep(replace(task, cancel_requested=True))
            return True
        case Replay(payload=payload):
            return (yield from _replay(work, task, payload, standing))
        case Discard():
            yield from abandon(work, task.id, "died and was discarded")
            return True
        case _:
            assert_never(action)


def _replay(work: UnitOfWork, task: Task, payload: bytes | None, standing: set[str]) -> Script[bool]:
    """Bring it back with all its attempts; False if its fingerprint stands again."""
    if task.fingerprint is not None:
        yield from ask("lock_fingerprints", [task.fingerprint])
        if task.fingerprint in standing or (yield from ask("standing", [task.fingerprint])):
            return False
        standing.add(task.fingerprint)
    change = replayed(task, payload, work.now)
    work.move(task, change.verb, change.state, **change.fields)
    return True
