"""What every store refuses, in the same words: a program should not have to know which one it talks to."""

from ..._model.lease import Lease
from ..._model.record import Record
from ..._model.task import NewTask, TaskId
from ...errors import DuplicateTask, IdempotencyConflict, LeaseLost, NotFound, NotSupported, SessionLost


def key_taken(new: NewTask, standing: TaskId) -> IdempotencyConflict:
    """Its key stands for something else."""
    return IdempotencyConflict(
        f"the idempotency key {new.idempotency_key!r} belongs to task {standing}, which has "
        f"another type or payload; use another key for another request",
        standing=standing,
    )


def duplicate(new: NewTask, standing: TaskId) -> DuplicateTask:
    """Its fingerprint stands."""
    return DuplicateTask(
        f"a {new.type!r} task with this payload and priority stands as {standing}; "
        f"wait for it, cancel it, or enqueue without unique",
        standing=standing,
    )


def no_predecessor(new: NewTask, predecessor: TaskId) -> NotFound:
    """It is to wait for nothing."""
    return NotFound(f"task {new.id} is to wait for {predecessor}, which does not exist")


def session_lost(session: str) -> SessionLost:
    """The session is not alive."""
    return SessionLost(f"session {session} has expired or was never opened; open a new one")


def lease_lost(lease: Lease, key: str) -> LeaseLost:
    """The lease does not hold any more."""
    return LeaseLost(f"the lease of task {lease.task_id} is lost; {key!r} is not marked")


def written_by_itself(record: Record) -> NotSupported:
    """Nobody but the store writes records of this kind."""
    return NotSupported(f"a {type(record).__name__} is written by the store itself")


def not_removed(kind: type[Record]) -> NotSupported:
    """What people did, and what the store counts, nobody takes away."""
    return NotSupported(f"a {kind.__name__} is the store's own to keep")
