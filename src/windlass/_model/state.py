"""The states of a task and its transitions, as a table. Diagrams, constraints and tests derive from it."""

from enum import StrEnum

from msgspec import Struct


class State(StrEnum):
    """Three states of waiting, one of running, three of having ended."""

    WAITING = "waiting"  # for a predecessor
    SCHEDULED = "scheduled"  # not due yet: for the first time, or again
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DEAD = "dead"


PENDING = frozenset({State.WAITING, State.SCHEDULED, State.READY})
ENDED = frozenset({State.COMPLETED, State.CANCELLED, State.DEAD})
REPLAYABLE = frozenset({State.DEAD, State.CANCELLED})


class Verb(StrEnum):
    """What takes a task from one state to another."""

    ENQUEUE = "enqueue"
    UNBLOCK = "unblock"
    PROMOTE = "promote"
    CLAIM = "claim"
    RESCUE = "rescue"
    COMPLETE = "complete"
    POSTPONE = "postpone"
    BURY = "bury"
    CANCEL = "cancel"
    REPLAY = "replay"
    DISCARD = "discard"


class Transition(Struct, frozen=True, gc=False):
    """A row of the table. `source` is None before the task exists; no targets: the task is deleted."""

    source: State | None
    verb: Verb
    targets: tuple[State, ...]
    by: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, Verb.ENQUEUE, (State.WAITING, State.SCHEDULED, State.READY), "client"),
    Transition(State.WAITING, Verb.UNBLOCK, (State.SCHEDULED, State.READY), "store"),
    Transition(State.SCHEDULED, Verb.PROMOTE, (State.READY,), "keeper"),
    Transition(State.READY, Verb.CLAIM, (State.RUNNING,), "worker"),
    Transition(State.RUNNING, Verb.RESCUE, (State.RUNNING,), "keeper"),
    Transition(State.RUNNING, Verb.COMPLETE, (State.COMPLETED,), "holder"),
    Transition(State.RUNNING, Verb.POSTPONE, (State.SCHEDULED, State.READY), "holder"),
    Transition(State.RUNNING, Verb.BURY, (State.DEAD,), "holder"),
    Transition(State.RUNNING, Verb.CANCEL, (State.CANCELLED,), "holder"),
    Transition(State.WAITING, Verb.CANCEL, (State.CANCELLED,), "operator"),
    Transition(State.SCHEDULED, Verb.CANCEL, (State.CANCELLED,), "operator"),
    Transition(State.READY, Verb.CANCEL, (State.CANCELLED,), "operator"),
    Transition(State.DEAD, Verb.REPLAY, (State.SCHEDULED, State.READY), "operator"),
    Transition(State.CANCELLED, Verb.REPLAY, (State.SCHEDULED, State.READY), "operator"),
    Transition(State.DEAD, Verb.DISCARD, (), "operator"),
)

_TARGETS = {(row.source, row.verb): row.targets for row in TRANSITIONS}


def allowed(source: State | None, verb: Verb) -> bool:
    """Whether the table has this transition."""
    return (source, verb) in _TARGETS


def targets(source: State | None, verb: Verb) -> tuple[State, ...]:
    """The states that a transition may lead to; raises KeyError if the table does not have it."""
    return _TARGETS[source, verb]
