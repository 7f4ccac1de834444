"""Settle: what verdicts make of running tasks and of the tasks that follow them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_never

from ..._model.attempt import Attempt, attempt_of, is_recorded
from ..._model.state import State, Verb
from ..._model.task import NewTask, Task, TaskId, may_need_results
from ..._model.transition import transition_of
from ..._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settled, Settlement
from ..._policy.failure import failure_of
from . import questions
from .admission import admit_successors
from .cancellation import while_running
from .questions import Changes, Rule
from .successors import abandon, lock_dependents, unblock


def settled(task: Task, settlement: Settlement, now: datetime) -> tuple[Verb, State, dict[str, Any]]:
    """What a settlement makes of a running task: the verb, the new state, and the other fields it changes."""
    verdict, duration = settlement.verdict, settlement.duration
    end = {"session": None, "finished_at": now, "duration": duration}
    match verdict:
        case Complete(result=result):
            return Verb.COMPLETE, State.COMPLETED, {"result": result, "error": None, "failure": None, **end}
        case Bury(error=error):
            return Verb.BURY, State.DEAD, {"error": error, "failure": failure_of(task.type, error), **end}
        case Postpone(delay=delay, reason=reason, error=error) if not task.cancel_requested:
            fields = {
                "unhandled_since": verdict.unhandled_since,
                # A released task keeps its place in the queue.
                "run_at": task.run_at if reason is Reason.RELEASE and not delay else now + delay,
                "attempt": task.attempt if reason is Reason.RETRY else task.attempt - 1,
                "session": None,
                "duration": duration,
                "error": error or task.error,
                "failure": task.failure if error is None else failure_of(task.type, error),
            }
            return Verb.POSTPONE, State.SCHEDULED if delay else State.READY, fields
        case Cancel(error=error) | Postpone(error=error):
            error = error or (while_running(task).error if task.cancel_requested else task.error)
            return Verb.CANCEL, State.CANCELLED, {"error": error, "failure": None, **end}
        case _:
            assert_never(verdict)


def settle(changes: Changes, batch: Sequence[Settlement]) -> Rule[Settled]:
    """Apply each verdict whose lease holds, then what follows from it; return receipts and transitions."""
    receipts = yield from _Settlements(changes).settle(batch)
    return Settled(receipts=receipts, transitions=tuple(changes.transitions))


def follow_up(changes: Changes, completed: Sequence[TaskId], applied: Sequence[Settlement]) -> Rule[None]:
    """Enqueue the successors in the verdicts, and unblock the tasks that waited for completed ones.

    In this order, as a task may wait for these successors too. All that wait are locked first, and at once:
    in parts, two settlements could lock them in different orders.
    """
    waiting = yield from lock_dependents(completed)
    successors = successors_in(applied)
    if successors:
        yield from admit_successors(changes, successors)
    yield from unblock(changes, waiting)


def successors_in(batch: Sequence[Settlement]) -> list[NewTask]:
    """Return the tasks that these verdicts enqueue."""
    return [new for s in batch if isinstance(s.verdict, Complete | Bury) for new in s.verdict.successors]


class _Settlements:
    """Settlements of one transaction."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tasks: dict[TaskId, Task] = {}
        self._ended: dict[TaskId, int] = {}  # fences
        self._applied: list[Settlement] = []
        self._cancelled: list[Task] = []
        self._attempts: list[Attempt] = []

    def settle(self, batch: Sequence[Settlement]) -> Rule[tuple[Receipt, ...]]:
        ids = list(dict.fromkeys(settlement.lease.task_id for settlement in batch))
        self._tasks.update((yield questions.LoadTasks(ids)))
        gone = [task_id for task_id in ids if task_id not in self._tasks]
        if gone:
            self._ended = yield questions.EndedFences(gone)
        receipts = tuple([self._settle(settlement) for settlement in batch])
        if self._attempts:
            yield questions.RecordAttempts(self._attempts)
        completed = [s.lease.task_id for s in self._applied if isinstance(s.verdict, Complete)]
        for task in self._cancelled:
            yield from abandon(self._changes, task.id, while_running(task))
        if joins := [task_id for task_id in completed if may_need_results(self._tasks[task_id])]:
            yield questions.DropDependencies(joins)
        if completed or successors_in(self._applied):
            yield from follow_up(self._changes, completed, self._applied)
        return receipts

    def _settle(self, settlement: Settlement) -> Receipt:
        lease = settlement.lease
        task = self._tasks.get(lease.task_id)
        if task is None:
            # A task that is gone had ended, and only the holder of its lease can end it: this is a repeat.
            fence = self._ended.get(lease.task_id, lease.fence)
            return Receipt.REPEATED if fence == lease.fence else Receipt.LOST
        if task.fence != lease.fence:
            return Receipt.LOST
        if task.state is not State.RUNNING:
            return Receipt.REPEATED
        self._apply(task, settlement)
        return Receipt.APPLIED

    def _apply(self, task: Task, settlement: Settlement) -> None:
        verb, state, fields = settled(task, settlement, self._changes.now)
        # The last attempt of a completed task is in the task itself, unless it has notes.
        is_complete = isinstance(settlement.verdict, Complete)
        if is_complete:
            self._changes.note_outcome(task.id, settlement.outcome)
        if settlement.notes is not None or (not is_complete and is_recorded(settlement)):
            self._attempts.append(attempt_of(task, settlement, self._changes.now))
        self._tasks[task.id] = moved = self._changes.move(task, verb, state, **fields)
        self._applied.append(settlement)
        if state is State.CANCELLED:
            self._cancelled.append(task)
            if task.cancel_requested:
                self._changes.transitions.append(transition_of(verb, moved))
