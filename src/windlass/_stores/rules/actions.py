"""What operators do to tasks: cancel, replay, discard."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import assert_never

from msgspec.structs import replace

from ..._model.filter import CancelTasks, Change, Discard, Expire, Filter, Replay
from ..._model.options import DeclaredType, by_name_or_alias
from ..._model.state import ENDED, PENDING, REPLAYABLE, State, Verb
from ..._model.task import Task, TaskId
from ..._model.transition import Applied, transition_of
from . import cancellation, questions
from .audit import audited
from .questions import Changes, Rule
from .successors import abandon, cancel_pending


def applicable(action: Change, where: Filter) -> Filter:
    """Narrow a filter to the states from which the action is possible."""
    match action:
        case CancelTasks():
            states = tuple(state for state in State if state not in ENDED)
        case Replay():
            states = tuple(sorted(REPLAYABLE))
        case Discard():
            states = (State.DEAD,)
        case Expire():
            states = tuple(state for state in State if state in PENDING)
        case _:
            assert_never(action)
    if where.states is not None:
        states = tuple(state for state in where.states if state in states)
    return replace(where, states=states)


def apply(
    changes: Changes, action: Change, ids: Iterable[TaskId], states: Collection[State], limit: int
) -> Rule[Applied]:
    """Apply an action to at most `limit` of these tasks that are in one of the states, and audit it."""
    done: list[Task] = []
    taken: set[str] = set()  # fingerprints of tasks replayed so far
    for task_id in ids:
        if len(done) >= limit:
            break
        # Loaded one by one: cancelling an earlier task may have changed this one.
        loaded: Mapping[TaskId, Task] = yield questions.LoadTasks([task_id])
        task = loaded.get(task_id)
        if task is None or task.state not in states:
            continue
        if isinstance(action, Replay):
            applied = yield from _replay(changes, task, action, len(done), taken)
        else:
            applied = yield from _apply(changes, action, task)
        if applied:
            done.append(task)
    if done and isinstance(action, Discard):
        yield questions.DeleteDead(done)
    if done and not isinstance(action, Expire):
        types: Sequence[DeclaredType] = ()
        if isinstance(action, Discard):  # its entries have payloads, of which a type may keep fields secret
            types = yield questions.DeclaredTypes()
        known = by_name_or_alias(types)
        entries = [
            audited(action, task, changes.now, known.get(task.type), number)
            for number, task in enumerate(done)
        ]
        yield questions.WriteAudit(entries)
    return Applied(ids=tuple(task.id for task in done), transitions=tuple(changes.transitions))


def _apply(changes: Changes, action: CancelTasks | Discard | Expire, task: Task) -> Rule[bool]:
    match action:
        case CancelTasks(by=by):
            if task.state in PENDING:
                yield from cancel_pending(changes, task, cancellation.by_operator(by))
            elif not task.cancel_requested:
                changes.update(task, cancel_requested=True, **cancellation.asked_by(by))
            return True
        case Expire():
            if not task.is_expired(changes.now):
                return False
            yield from cancel_pending(changes, task, cancellation.expired(task))
            return True
        case Discard(by=by):
            yield from abandon(changes, task.id, cancellation.discarded(by))
            changes.transitions.append(transition_of(Verb.DISCARD, task))
            return True
        case _:
            assert_never(action)


def _replay(changes: Changes, task: Task, action: Replay, number: int, taken: set[str]) -> Rule[bool]:
    """Make a task due with all its attempts, the first after `number` others.

    Returns False if another task with its fingerprint has not ended.
    """
    fingerprint = action.fingerprint_of(task)
    if fingerprint is not None:
        if fingerprint in taken or (yield questions.TakenFingerprints([fingerprint])):
            return False
        taken.add(fingerprint)
    run_at = action.due_at(number, changes.now)
    moved = changes.move(
        task,
        Verb.REPLAY,
        State.SCHEDULED if run_at > changes.now else State.READY,
        attempt=0,
        run_at=run_at,
        payload=task.payload if action.payload is None else action.payload,
        fingerprint=fingerprint,
        finished_at=None,
        cancel_requested=False,
        progress=None,
        expires_at=None,
        **cancellation.asked_by(None),
    )
    changes.transitions.append(transition_of(Verb.REPLAY, moved))
    return True
