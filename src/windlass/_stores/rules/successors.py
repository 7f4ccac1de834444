"""What the end of a task means for the tasks that wait for it."""

from collections.abc import Sequence
from typing import Any

from ..._model.state import State, Verb
from ..._model.task import Task, TaskId, may_need_results
from ..._model.transition import transition_of
from . import questions
from .cancellation import Cancellation
from .questions import Changes, Rule


def lock_dependents(completed: Sequence[TaskId]) -> Rule[Sequence[TaskId]]:
    """Lock and return the tasks that wait for these."""
    if not completed:
        return ()
    dependents: Sequence[TaskId] = yield questions.Dependents(completed)
    successors = list(dict.fromkeys(dependents))
    if successors:
        yield questions.LoadTasks(successors)
    return successors


def unblock(changes: Changes, successors: Sequence[TaskId]) -> Rule[None]:
    """Start those of these locked tasks that wait for nothing any more.

    They are locked before looking: of two predecessors that complete at once, the second then sees the first.
    Those that take results keep their dependencies, so that the results are not pruned before they complete.
    """
    if not successors:
        return
    tasks: dict[TaskId, Task] = yield questions.LoadTasks(successors)
    waiting = [one for one in successors if one in tasks and tasks[one].state is State.WAITING]
    if not waiting:
        return
    blocked = yield questions.StillWaiting(waiting)
    free = [tasks[successor] for successor in waiting if successor not in blocked]
    if done := [task.id for task in free if not may_need_results(task)]:
        yield questions.DropDependencies(done)
    for task in free:
        is_early = task.run_at > changes.now
        moved = changes.move(task, Verb.UNBLOCK, State.SCHEDULED if is_early else State.READY)
        changes.transitions.append(transition_of(Verb.UNBLOCK, moved))


def abandon(changes: Changes, predecessor: TaskId, why: Cancellation) -> Rule[None]:
    """Cancel the tasks that wait for one that will never complete, and the tasks that wait for those."""
    # A stack instead of recursion: chains may be longer than Python's recursion limit.
    doomed = yield from _doomed(predecessor, why)
    while doomed:
        successor, its_own = doomed.pop()
        tasks: dict[TaskId, Task] = yield questions.LoadTasks([successor])
        task = tasks.get(successor)
        if task is not None and task.state is State.WAITING:
            yield from _cancel(changes, task, its_own)
            doomed += yield from _doomed(successor, its_own)


def cancel_pending(changes: Changes, task: Task, why: Cancellation, **fields: Any) -> Rule[None]:
    """Cancel a task that has not started, change these fields of it, and cancel those that wait for it."""
    yield from _cancel(changes, task, why, **fields)
    yield from abandon(changes, task.id, why)


def _doomed(predecessor: TaskId, why: Cancellation) -> Rule[list[tuple[TaskId, Cancellation]]]:
    """The tasks that wait for this one, last first, each with the reason of its own cancellation."""
    successors: Sequence[TaskId] = yield questions.Dependents([predecessor])
    its_own = why.of_successor(predecessor)
    return [(successor, its_own) for successor in reversed(successors)]


def _cancel(changes: Changes, task: Task, why: Cancellation, **fields: Any) -> Rule[None]:
    if task.state is State.WAITING and not may_need_results(task):
        yield questions.DropDependencies([task.id])
    end = {"finished_at": changes.now, **why.fields, **fields}
    moved = changes.move(task, Verb.CANCEL, State.CANCELLED, **end)
    changes.transitions.append(transition_of(Verb.CANCEL, moved))
