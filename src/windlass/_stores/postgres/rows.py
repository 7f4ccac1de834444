"""Convert rows to tasks, and tasks to rows."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from ..._model.attempt import Attempt
from ..._model.state import State
from ..._model.task import Error, NewTask, Progress, Task, TaskId, is_task_id
from .queue_layout import Placement

Row: TypeAlias = Sequence[Any]

_STATES = {state.value: state for state in State}
_texts = msgspec.json.Decoder(tuple[str, ...])
_encoder = msgspec.json.Encoder()


def ids_of(texts: Iterable[str]) -> list[str]:
    """Return the valid ids, once each and sorted, which is the order in which locks are taken."""
    return sorted({text for text in texts if is_task_id(text)})


# -- reading -----------------------------------------------------------------------------------------


def read_task(row: Row) -> Task:
    """Build a task from a row of the slot `task_columns` or `history_columns`."""
    *leased, state, finished_at, fraction, message, result = row
    progress = None if fraction is None else Progress(fraction=fraction, message=message or "")
    return read_leased(leased, _STATES[state], finished_at, progress, result)


def read_leased(
    row: Row,
    state: State = State.RUNNING,
    finished_at: datetime | None = None,
    progress: Progress | None = None,
    result: bytes | None = None,
) -> Task:
    """Build a task from a row of the slot `leased_columns`: one just claimed, unless the rest differs."""
    # Unpacked by position, which is quickest: every claimed task passes here.
    (id_, type_, payload, root, queue, tenant, priority, boost, max_attempts, timeout, next_, result_into,
     secret, trace, enqueued_by, idempotency_key, fingerprint, after, created_at, claimed_at, attempt, fence,
     run_at, session, worker, cancel_requested, error_type, error_message, error_traceback,
     duration, unhandled_since) = row  # fmt: skip
    return Task(
        id=id_,
        type=type_,
        payload=payload,
        root=root,
        queue=queue,
        tenant=tenant,
        priority=priority,
        boost=boost,
        state=state,
        attempt=attempt,
        max_attempts=max_attempts,
        fence=fence,
        run_at=run_at,
        created_at=created_at,
        claimed_at=claimed_at,
        finished_at=finished_at,
        timeout=timeout,
        session=session,
        worker=worker,
        duration=duration,
        progress=progress,
        result=result,
        cancel_requested=cancel_requested,
        error=None if error_type is None else read_error(error_type, error_message, error_traceback),
        idempotency_key=idempotency_key,
        fingerprint=fingerprint,
        next=next_,
        after=() if after is None else _texts.decode(after),
        result_into=result_into,
        secret=() if secret is None else _texts.decode(secret),
        trace=trace,
        enqueued_by=enqueued_by,
        unhandled_since=unhandled_since,
    )


def read_error(type_: str | None, message: str | None, traceback: str | None) -> Error | None:
    """Build an error from its three columns."""
    return None if type_ is None else Error(type=type_, message=message or "", traceback=traceback)


def read_attempt(task_id: TaskId, row: Row) -> Attempt:
    """Build an attempt from a row of attempts.sql."""
    fence, number, worker, claimed_at, finished_at, duration, outcome, *error, trace = row
    return Attempt(
        task_id=task_id,
        number=number,
        fence=fence,
        worker=worker,
        claimed_at=claimed_at,
        finished_at=finished_at,
        duration=duration,
        outcome=outcome,
        error=read_error(*error),
        trace=trace,
    )


# -- writing -----------------------------------------------------------------------------------------


def columns_of(rows: Sequence[Row], number: int) -> list[list[Any]]:
    """Transpose rows into `number` lists, one per column, as parameters for unnest."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(number)]


def listed(texts: tuple[str, ...]) -> str | None:
    """Encode texts for one column; None if there are none."""
    return _encoder.encode(texts).decode() if texts else None


def new_row(new: NewTask, placement: Placement, *, awaited: bool = False, waiting: bool = False) -> Row:
    """Return the parameters of enqueue.sql for one task, after the clock."""
    return (
        new.run_at,
        new.delay,
        waiting,
        *plain_row(new, placement),
        new.idempotency_key,
        new.fingerprint,
        listed(new.after),
        awaited,
    )


def plain_row(new: NewTask, placement: Placement) -> Row:
    """Return the columns of a task without key, fingerprint or predecessors: statements.PLAIN_COLUMNS."""
    return (
        new.id,
        new.type,
        new.payload,
        new.root,
        new.queue,
        new.tenant,
        new.priority,
        new.boost,
        new.max_attempts,
        new.timeout,
        new.next,
        new.result_into,
        listed(new.secret),
        new.trace,
        new.enqueued_by,
        placement.stripe,
        placement.lane,
        placement.key,
    )


def error_columns(error: Error | None) -> tuple[str | None, str | None, str | None]:
    """Return the three columns of an error."""
    return (None, None, None) if error is None else (error.type, error.message, error.traceback)
