"""What a task's end does to the tasks that wait for it, and to what is kept about it."""

from collections.abc import Sequence

from ..._model.state import State, Verb
from ..._model.task import Error, Task, TaskId
from .statements import listed
from .transaction import Transaction


def unblock(tx: Transaction, completed: Sequence[TaskId]) -> None:
    """Predecessors completed: tasks that waited for nothing else may go."""
    if tx.value("any_dependency") is None:
        return
    for successor in dict.fromkeys(row[1] for row in tx.rows("dependents", {"ids": listed(completed)})):
        if tx.value("still_waits", {"successor": successor}) is not None:
            continue
        tx.run("forget_dependencies", {"successor": successor})
        task = tx.get(successor)
        if task is not None and task.state is State.WAITING:
            early = task.run_at > tx.now
            tx.move(task, Verb.UNBLOCK, State.SCHEDULED if early else State.READY)


def abandon(tx: Transaction, predecessor: TaskId, why: str) -> None:
    """A predecessor can never complete: the tasks that waited for it are cancelled, and theirs."""
    # A stack and not recursion: chains may be longer than Python's stack is deep.
    doomed = _successors(tx, predecessor, why)
    while doomed:
        successor, reason = doomed.pop()
        task = tx.get(successor)
        if task is not None and task.state is State.WAITING:
            _cancel(tx, task, reason)
            doomed += _successors(tx, successor, "was cancelled")


def cancel_pending(tx: Transaction, task: Task, why: str) -> None:
    """Cancel a task that has not started, and what waits for it."""
    _cancel(tx, task, why)
    abandon(tx, task.id, "was cancelled")


def _successors(tx: Transaction, predecessor: TaskId, why: str) -> list[tuple[TaskId, str]]:
    """Who waits for it, last first, and what they will be told."""
    waiting = tx.rows("dependents", {"ids": listed([predecessor])})
    return [
        (successor, f"task {predecessor}, which it waited for, {why}") for _, successor in reversed(waiting)
    ]


def _cancel(tx: Transaction, task: Task, why: str) -> None:
    tx.run("forget_dependencies", {"successor": task.id})
    error = Error(type="Cancelled", message=why)
    tx.move(task, Verb.CANCEL, State.CANCELLED, finished_at=tx.now, error=error)


def forget(tx: Transaction, task_id: TaskId, tenant: str, idempotency_key: str | None) -> None:
    """Delete an ended task and everything about it; its idempotency key may be kept for longer."""
    tx.run("forget", {"id": task_id})
    tx.run("forget_attempts", {"id": task_id})
    tx.run("forget_marks", {"id": task_id})
    if idempotency_key is not None:
        tx.run("forget_key", {"tenant": tenant, "key": idempotency_key, "task_id": task_id})
