"""What a task's end does to the tasks that wait for it."""

from collections.abc import Sequence

from ..._model.state import State, Verb
from ..._model.task import Error, Task, TaskId
from .script import Script, ask
from .unit_of_work import UnitOfWork


def unblock(work: UnitOfWork, completed: Sequence[TaskId]) -> Script[None]:
    """Predecessors completed, and it is written: tasks that waited for nothing else may go."""
    awaited = [task_id for task_id in completed if work.is_awaited(task_id)]
    if not awaited:
        return
    successors = [row[1] for row in (yield from ask("dependents", awaited))]
    # Locked first: of two predecessors that complete at once, the later to get here sees the other's end.
    yield from work.load(successors)
    waiting = {row[0] for row in (yield from ask("still_wait", successors))}
    free = [successor for successor in dict.fromkeys(successors) if successor not in waiting]
    yield from ask("forget_dependencies", free)
    for successor in free:
        task = work.get(successor)
        if task is not None and task.state is State.WAITING:
            work.move(task, Verb.UNBLOCK, State.SCHEDULED if task.run_at > work.now else State.READY)


def abandon(work: UnitOfWork, predecessor: TaskId, why: str) -> Script[None]:
    """A predecessor can never complete: the tasks that waited for it are cancelled, and theirs."""
    if not work.is_awaited(predecessor):
        return
    # A stack and not recursion: chains may be longer than Python's stack is deep.
    doomed = yield from _successors(predecessor, why)
    while doomed:
        successor, reason = doomed.pop()
        yield from work.load([successor])
        task = work.get(successor)
        if task is not None and task.state is State.WAITING:
            yield from _cancel(work, task, reason)
            if work.is_awaited(successor):
                doomed += yield from _successors(successor, "was cancelled")


def cancel_pending(work: UnitOfWork, task: Task, why: str) -> Script[None]:
    """Cancel a task that has not started, and what waits for it."""
    yield from _cancel(work, task, why)
    yield from abandon(work, task.id, "was cancelled")


def _successors(predecessor: TaskId, why: str) -> Script[list[tuple[TaskId, str]]]:
    """Who waits for it, last first, and what they will be told."""
    waiting = yield from ask("dependents", [predecessor])
    reason = f"task {predecessor}, which it waited for, {why}"
    return [(successor, reason) for _, successor in reversed(waiting)]


def _cancel(work: UnitOfWork, task: Task, why: str) -> Script[None]:
    if task.state is State.WAITING:
        yield from ask("forget_dependencies", [task.id])
    work.move(
        task, Verb.CANCEL, State.CANCELLED, finished_at=work.now, error=Error(type="Cancelled", message=why)
    )
