"""Heartbeats: the reply to a worker, and the release of claims that never reached it."""

from collections.abc import Iterable, Mapping

from ..._model.lease import RESCUED, CancelRequest, Heartbeat, HeartbeatReply, Lease
from ..._model.state import State, Verb
from ..._model.task import Task, TaskId
from ..._model.transition import TaskTransition, transition_of
from . import cancellation, questions
from .questions import Changes, Rule
from .successors import abandon


def heartbeat_reply(
    beat: Heartbeat,
    running: Mapping[Lease, CancelRequest | None],
    transitions: tuple[TaskTransition, ...] = (),
    *,
    workers: int,
) -> HeartbeatReply:
    """Report the leases that were lost and the tasks to stop.

    `running` has the current lease of each task that the worker holds, and the request to cancel it, if any.
    `workers`: the number of sessions.
    """
    return HeartbeatReply(
        alive=True,
        lost=tuple(lease for lease in beat.held if lease not in running),
        cancel=tuple(request for lease in beat.held if (request := running.get(lease)) is not None),
        transitions=transitions,
        workers=workers,
    )


def unacknowledged_claims(beat: Heartbeat, claims: Iterable[tuple[TaskId, int, int]]) -> dict[TaskId, int]:
    """Which of a session's running tasks (id, fence, number of the claim) the worker cannot know of."""
    held = set(beat.held)
    return {
        task_id: number
        for task_id, fence, number in claims
        if number <= beat.through and Lease(task_id, fence) not in held
    }


def release_unacknowledged_claims(
    changes: Changes, beat: Heartbeat, claims: Mapping[TaskId, int]
) -> Rule[tuple[TaskTransition, ...]]:
    """Release tasks granted to this session in a reply that never arrived: task id to number of the claim.

    A claimed task never ran, so its attempt is not counted; a rescued one did run, and its attempt stays.
    """
    held = set(beat.held)
    tasks: Mapping[TaskId, Task] = yield questions.LoadTasks(list(claims))
    for task_id, number in claims.items():
        task = tasks.get(task_id)
        if task is None or task.session != beat.session or task.state is not State.RUNNING:
            continue
        if number > beat.through or Lease(task_id, task.fence) in held:
            continue
        # The fence rises, so that a late settlement under the old lease changes nothing.
        fence = task.fence + 1
        if task.cancel_requested:
            why = cancellation.while_running(task)
            end = {"fence": fence, "session": None, "finished_at": changes.now, **why.fields}
            moved = changes.move(task, Verb.CANCEL, State.CANCELLED, **end)
            changes.transitions.append(transition_of(Verb.CANCEL, moved))
            yield from abandon(changes, task_id, why)
        else:
            attempt = task.attempt if number == RESCUED else task.attempt - 1
            moved = changes.move(task, Verb.POSTPONE, State.READY, fence=fence, session=None, attempt=attempt)
            changes.transitions.append(transition_of(Verb.POSTPONE, moved))
    return tuple(changes.transitions)
