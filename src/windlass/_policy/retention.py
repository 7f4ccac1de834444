"""What may be pruned, and when. (L3)"""

from datetime import datetime, timedelta

from .._model.queue import Retention
from .._model.state import State


def keep_for(retention: Retention, state: State) -> timedelta | None:
    """How long the record of a task that ended so is kept; None is for ever."""
    match state:
        case State.COMPLETED:
            return retention.completed
        case State.CANCELLED:
            return retention.cancelled
        case State.DEAD:
            return retention.dead
        case _:
            return None


def horizon(retention: Retention, state: State, now: datetime) -> datetime | None:
    """Tasks that ended so before this instant may go; None: never."""
    kept = keep_for(retention, state)
    if kept is None:
        return None
    try:
        return now - kept
    except OverflowError:  # from before the first year: nothing is as old
        return None
