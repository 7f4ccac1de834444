"""What an operator may do to which tasks, and the line in the audit log that says so."""

from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from .._ids import new_id
from .._model.filter import Action, CancelTasks, Discard, Filter, Replay
from .._model.record import Audit
from .._model.state import ENDED, REPLAYABLE, State
from .._model.task import TaskId


def allowing(action: Action) -> tuple[State, ...]:
    """The states from which the table of transitions lets this be done."""
    match action:
        case CancelTasks():
            return tuple(state for state in State if state not in ENDED)
        case Replay():
            return tuple(sorted(REPLAYABLE))
        case Discard():
            return (State.DEAD,)
        case _:
            assert_never(action)


def allowed(action: Action, where: Filter) -> Filter:
    """Of those that match, the ones in a state from which this can be done."""
    states = allowing(action)
    asked = states if where.states is None else tuple(s for s in where.states if s in states)
    return replace(where, states=asked)


def audited(action: Action, task_id: TaskId, now: datetime) -> Audit:
    """Who did it to which task, and why."""
    edited = isinstance(action, Replay) and action.payload is not None
    return Audit(
        id=new_id(),
        at=now,
        who=action.by.who,
        why=action.by.why,
        action=str(action.__struct_config__.tag),
        task_id=task_id,
        detail="with an edited payload" if edited else "",
    )
