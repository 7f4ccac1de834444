"""What an operator does to tasks, and the lines in the audit log that say so."""

from collections.abc import Iterator
from typing import assert_never

from msgspec.structs import asdict, replace

from ..._model.filter import Action, CancelTasks, Discard, Filter, Page, Replay
from ..._model.record import Audit
from ..._model.state import PENDING
from ..._model.task import Task, TaskId
from ..rules.audit import allowed, audited
from ..rules.transitions import replayed
from .read.filters import finding
from .rows import read_tasks
from .successors import abandon, cancel_pending, forget
from .transaction import Transaction

_CHUNK = 500


def apply(tx: Transaction, action: Action, where: Filter, limit: int) -> list[TaskId]:
    """Do it to those that match and allow it, oldest first, and audit it. An index must lead to them."""
    where = allowed(action, where)
    asked = where.states or ()
    done: list[TaskId] = []
    for task in _matching(tx, where):
        if len(done) >= limit:
            break
        # An earlier one's cancellation may have changed this one.
        current = tx.get(task.id)
        if current is not None and current.state in asked and _act(tx, action, current):
            done.append(task.id)
    return done


def _matching(tx: Transaction, where: Filter) -> Iterator[Task]:
    """Those that match, oldest first, a chunk at a time; many ids are not gone through for every chunk."""
    if where.ids is not None:
        ids = sorted(set(where.ids))
        for start in range(0, len(ids), _CHUNK):
            yield from _chunk(tx, replace(where, ids=tuple(ids[start : start + _CHUNK])), None)
        return
    found = _chunk(tx, where, None)
    yield from found
    while len(found) == _CHUNK:
        found = _chunk(tx, where, found[-1].id)
        yield from found


def _chunk(tx: Transaction, where: Filter, cursor: str | None) -> list[Task]:
    query = finding(where, Page(limit=_CHUNK, cursor=cursor))
    return read_tasks(tx.select(query.sql, query.parameters))


def _act(tx: Transaction, action: Action, task: Task) -> bool:
    done = _do(tx, action, task)
    if done:
        audit(tx, audited(action, task.id, tx.now))
    return done


def audit(tx: Transaction, line: Audit) -> None:
    """Write a line of the audit log. That it is about no task is said by an empty id."""
    tx.run("audit", {**asdict(line), "at": tx.at, "task_id": line.task_id or ""})


def _do(tx: Transaction, action: Action, task: Task) -> bool:
    match action:
        case CancelTasks(by=by):
            if task.state in PENDING:
                cancel_pending(tx, task, by.why or f"cancelled by {by.who}")
            else:
                tx.keep(task, replace(task, cancel_requested=True))
            return True
        case Replay(payload=payload):
            return _replay(tx, task, payload)
        case Discard():
            abandon(tx, task.id, "died and was discarded")
            forget(tx, task.id, task.tenant, task.idempotency_key)
            return True
        case _:
            assert_never(action)


def _replay(tx: Transaction, task: Task, payload: bytes | None) -> bool:
    """Bring it back with all its attempts; False if its fingerprint stands again."""
    if task.fingerprint is not None and tx.value("standing", {"fingerprint": task.fingerprint}) is not None:
        return False
    change = replayed(task, payload, tx.now)
    tx.move(task, change.verb, change.state, **change.fields)
    return True
