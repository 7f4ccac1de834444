"""Transitions that a verb of a store made, as facts for events; and the replies that carry them."""

from typing import Any

from msgspec import Struct

from .state import State, Verb
from .task import Error, Task, TaskId


class TaskTransition(Struct, frozen=True, gc=False, kw_only=True):
    """One transition of a task, and the task after it. Never carries payload or result."""

    verb: Verb
    task_id: TaskId
    type: str
    queue: str
    tenant: str
    attempt: int
    fence: int
    worker: str | None = None
    trace: str | None = None
    error: Error | None = None
    by: str | None = None  # who cancelled it


def transition_of(verb: Verb, task: Task) -> TaskTransition:
    """Describe a transition by the task after it."""
    return TaskTransition(
        verb=verb,
        task_id=task.id,
        type=task.type,
        queue=task.queue,
        tenant=task.tenant,
        attempt=task.attempt,
        fence=task.fence,
        worker=task.worker,
        trace=task.trace,
        error=task.error if verb is Verb.CANCEL else None,
        by=task.cancelled_by if verb is Verb.CANCEL else None,
    )


class Applied(Struct, frozen=True, gc=False, kw_only=True):
    """The result of an operator's action: the tasks it was applied to, and every transition that it made.

    A running task that was asked to stop is in `ids`, but has made no transition yet. Successors that were
    cancelled along with a task are in `transitions` only.
    """

    ids: tuple[TaskId, ...] = ()
    transitions: tuple[TaskTransition, ...] = ()

    def __add__(self, other: "Applied") -> "Applied":
        return Applied(ids=self.ids + other.ids, transitions=self.transitions + other.transitions)


class PrunedCount(Struct, frozen=True, gc=False, kw_only=True):
    """How many ended tasks of one queue and state were deleted."""

    queue: str
    state: State
    number: int


class Pruned(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a prune: what was deleted, and the cancelled successors of dead tasks among it."""

    counts: tuple[PrunedCount, ...] = ()
    transitions: tuple[TaskTransition, ...] = ()

    @property
    def number(self) -> int:
        """How many tasks were deleted."""
        return sum(count.number for count in self.counts)


def pruned_counts(numbers: dict[tuple[str, Any], int]) -> tuple[PrunedCount, ...]:
    """Return numbers by (queue, state) as counts, in that order."""
    return tuple(
        PrunedCount(queue=queue, state=State(state), number=number)
        for (queue, state), number in sorted(numbers.items())
        if number
    )
