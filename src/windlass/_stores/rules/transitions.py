"""What a verdict and a replay make of a task, for stores that keep tasks as rows. Memory, the specification
that they are held against, says it in its own words."""

from datetime import datetime
from typing import Any, assert_never

from msgspec import Struct

from ..._model.state import State, Verb
from ..._model.task import Task
from ..._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Settlement


class Change(Struct, frozen=True):
    """A move along the table of states, and what else it changes about the task."""

    verb: Verb
    state: State
    fields: dict[str, Any]


def settled(task: Task, settlement: Settlement, now: datetime) -> Change:
    """What its settlement makes of a running task."""
    verdict, duration = settlement.verdict, settlement.duration
    end = {"session": None, "finished_at": now, "duration": duration}
    match verdict:
        case Complete(result=result):
            return Change(Verb.COMPLETE, State.COMPLETED, {"result": result, "error": None, **end})
        case Bury(error=error):
            return Change(Verb.BURY, State.DEAD, {"error": error, **end})
        case Postpone(delay=delay, reason=reason, error=error) if not task.cancel_requested:
            fields = {
                # Handed back, it keeps its place in the queue.
                "run_at": task.run_at if reason is Reason.RELEASE and not delay else now + delay,
                "attempt": task.attempt if reason is Reason.RETRY else task.attempt - 1,
                "session": None,
                "duration": duration,
                "error": error or task.error,
            }
            return Change(Verb.POSTPONE, State.SCHEDULED if delay else State.READY, fields)
        case Cancel(error=error) | Postpone(error=error):
            return Change(Verb.CANCEL, State.CANCELLED, {"error": error or task.error, **end})
        case _:
            assert_never(verdict)


def replayed(task: Task, payload: bytes | None, now: datetime) -> Change:
    """What bringing it back with all its attempts makes of a dead or cancelled task."""
    fields = {
        "attempt": 0,
        "run_at": now,
        "payload": task.payload if payload is None else payload,
        "finished_at": None,
        "cancel_requested": False,
        "progress": None,
    }
    return Change(Verb.REPLAY, State.READY, fields)
