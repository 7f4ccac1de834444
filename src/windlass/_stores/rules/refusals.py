"""The errors that every store raises, worded once."""

from datetime import datetime, timedelta

from ..._model.lease import Lease
from ..._model.queue import QueueSettings
from ..._model.record import KINDS, Record, StoredRecord
from ..._model.task import NewTask, TaskId
from ...errors import (
    Conflict,
    DuplicateTask,
    IdempotencyConflict,
    InvalidOption,
    LeaseLost,
    NotFound,
    NotSupported,
    SessionLost,
)


def key_taken(new: NewTask, existing: TaskId) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"idempotency key {new.idempotency_key!r} was already used for task {existing}, which has another "
        f"type or payload; use a new key for a new request",
        standing=existing,
    )


def duplicate(new: NewTask, existing: TaskId) -> DuplicateTask:
    return DuplicateTask(
        f"an equal {new.type!r} task has not finished yet: {existing}; "
        f"wait for it, cancel it, or enqueue without unique",
        standing=existing,
    )


def run_at_out_of_range(run_at: datetime) -> InvalidOption:
    return InvalidOption(f"run_at must be from 1970 to ten years from now, got {run_at.isoformat()}")


def delay_out_of_range(delay: timedelta) -> InvalidOption:
    return InvalidOption(f"delay must be from 0 to ten years, got {delay}")


def expires_in_out_of_range(expires: timedelta) -> InvalidOption:
    return InvalidOption(f"expires must be more than 0 and at most ten years, got {expires}")


def expiry_out_of_range(expires: str) -> InvalidOption:
    return InvalidOption(f"expires must be within ten years of when the task is due, got {expires}")


def expires_before_due(expires_at: datetime, due_at: datetime) -> InvalidOption:
    return InvalidOption(
        f"the task expires at {expires_at.isoformat()}, before it is due at {due_at.isoformat()}, so it "
        f"would never start; set a later expiry, or a duration, which counts from when it is due"
    )


def within_period(new: NewTask, existing: TaskId) -> DuplicateTask:
    return DuplicateTask(
        f"an equal {new.type!r} task was enqueued before, and is unique for a period that has not passed: "
        f"{existing}; enqueue again later, or without unique_for",
        standing=existing,
    )


def no_predecessor(new: NewTask, predecessor: TaskId) -> NotFound:
    return NotFound(f"task {new.id} cannot wait for {predecessor}: there is no such task")


def session_lost(session: str) -> SessionLost:
    return SessionLost(f"session {session} has expired or was never opened; open a new one")


def lease_lost(lease: Lease, key: str) -> LeaseLost:
    return LeaseLost(f"the lease of task {lease.task_id} was lost; {key!r} was not marked")


def written_by_itself(record: Record) -> NotSupported:
    return NotSupported(f"cannot store a {type(record).__name__}: only the store itself writes them")


def not_removed(kind: type[Record]) -> NotSupported:
    return NotSupported(f"cannot remove a {kind.__name__}: the store keeps these records itself")


def changed_meanwhile(record: QueueSettings | StoredRecord) -> Conflict:
    kind = KINDS.get(type(record), "queue")
    return Conflict(
        f"the {kind} {record.name!r} was changed by someone else meanwhile; read it and try again"
    )
