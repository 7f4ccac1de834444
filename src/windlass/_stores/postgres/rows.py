"""The columns of a task; convert rows to tasks, and tasks to rows."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ..._model.attempt import Attempt
from ..._model.state import State
from ..._model.task import EARLIEST, Error, NewTask, Progress, Task, TaskId, is_task_id
from ..salvage import salvaged_task

if TYPE_CHECKING:
    from .queue_layout import Placement

Row: TypeAlias = Sequence[Any]

HISTORY = (State.COMPLETED, State.CANCELLED)
"""The states of tasks in the history; all others are in the table of tasks."""

# Given when a task is enqueued, with their SQL types; in the order of `plain_row`, then of `new_row`.
_PLAIN = {
    "id": "uuid",
    "type": "text",
    "payload": "bytea",
    "root": "uuid",
    "queue": "text",
    "tenant": "text",
    "priority": "integer",
    "boost": "bigint",
    "max_attempts": "integer",
    "timeout": "interval",
    "next": "bytea",
    "result_into": "text",
    "secret": "text",
    "trace": "text",
    "enqueued_by": "text",
}
_PLACED = {"stripe": "smallint", "lane": "text", "key": "text"}
_CHECKED = {"idempotency_key": "text", "fingerprint": "text", "after": "text"}
NEW_TYPES = _PLAIN | _PLACED | _CHECKED | {"awaited": "boolean"}
BEFORE_NEW = 6
"""Parameters of enqueue.sql and enqueue_one.sql before the new columns: clock, run_at, delay, expires_at,
expires_in, waiting."""

PLAIN_COLUMNS = (*_PLAIN, *_PLACED)
"""The columns of `plain_row`."""

NEW_COLUMNS = BEFORE_NEW - 1 + len(NEW_TYPES)
"""How many columns `new_row` has."""

# What an end does not change.
FIXED_COLUMNS = (*_PLAIN, *_CHECKED, "created_at", "claimed_at", "expires_at")
LEASED_COLUMNS = (
    *FIXED_COLUMNS, "attempt", "fence", "run_at", "session", "worker", "cancel_requested", "error_type",
    "error_message", "error_traceback", "duration", "unhandled_since", "cancelled_by", "cancel_reason",
    "failure",
)  # fmt: skip
TASK_COLUMNS = (*LEASED_COLUMNS, "state", "finished_at", "progress_fraction", "progress_message", "result")
NOT_IN_HISTORY = {"session": "NULL::text", "unhandled_since": "NULL::timestamptz"}

LATEST = datetime(9999, 1, 1, tzinfo=UTC)
"""For an infinite instant: the last year, with room for every time zone."""

_STATES = {state.value: state for state in State}
_texts = msgspec.json.Decoder(tuple[str, ...])
_encoder = msgspec.json.Encoder()
_READERS = dict.fromkeys(("after", "secret"), _texts.decode)


def ids_of(texts: Iterable[str]) -> list[str]:
    """Return the valid ids, once each and sorted, which is the order in which locks are taken."""
    return sorted({text for text in texts if is_task_id(text)})


# -- reading -----------------------------------------------------------------------------------------


def read_task(row: Row) -> Task:
    """Build a task from a row of the slot `task_columns` or `history_columns`."""
    try:
        return _read_task(row)
    except ValueError:
        return salvaged_task(dict(zip(TASK_COLUMNS, row, strict=True)), _READERS)


def _read_task(row: Row) -> Task:
    *leased, state, finished_at, fraction, message, result = row
    progress = None if fraction is None else Progress(fraction=fraction, message=message or "")
    return _read_leased(leased, _STATES[state], finished_at, progress, result)


def read_leased(row: Row) -> Task:
    """Build a task that was just claimed from a row of the slot `leased_columns`."""
    try:
        return _read_leased(row, State.RUNNING)
    except ValueError:
        columns = {**dict.fromkeys(TASK_COLUMNS), **dict(zip(LEASED_COLUMNS, row, strict=True))}
        return salvaged_task({**columns, "state": State.RUNNING}, _READERS)


def _read_leased(
    row: Row,
    state: State,
    finished_at: datetime | None = None,
    progress: Progress | None = None,
    result: bytes | None = None,
) -> Task:
    # By position, in the order of the columns and of Task, for speed: every claimed task passes here.
    (id_, type_, payload, root, queue, tenant, priority, boost, max_attempts, timeout, next_, result_into,
     secret, trace, enqueued_by, idempotency_key, fingerprint, after, created_at, claimed_at, expires_at,
     attempt, fence, run_at, session, worker, cancel_requested, error_type, error_message, error_traceback,
     duration, unhandled_since, cancelled_by, cancel_reason, failure) = row  # fmt: skip
    if run_at.tzinfo is None:
        run_at = finite(run_at)
    return Task(
        id_, type_, payload, root, queue, tenant, priority, boost, state, attempt, max_attempts, fence,
        run_at, created_at, claimed_at, finished_at, timeout, session, worker, duration, cancel_requested,
        progress, result, read_error(error_type, error_message, error_traceback), idempotency_key,
        fingerprint, next_, () if after is None else _texts.decode(after), result_into,
        () if secret is None else _texts.decode(secret), trace, enqueued_by, unhandled_since, expires_at,
        cancelled_by, cancel_reason, failure,
    )  # fmt: skip


def finite(at: datetime) -> datetime:
    """Return an instant that can be compared for an infinite one, which asyncpg reads without a time zone.

    No task can be enqueued with one any more, but older versions stored them.
    """
    return EARLIEST if at.year == 1 else LATEST


def read_error(type_: str | None, message: str | None, traceback: str | None) -> Error | None:
    return None if type_ is None else Error(type=type_, message=message or "", traceback=traceback)


def read_attempt(task_id: TaskId, row: Row) -> Attempt:
    """Build an attempt from a row of attempts.sql."""
    fence, number, worker, claimed_at, finished_at, duration, outcome, *error, trace, notes = row
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
        notes=notes,
    )


# -- writing -----------------------------------------------------------------------------------------


def columns_of(rows: Sequence[Row], number: int) -> list[list[Any]]:
    """Transpose rows into `number` lists, one per column, as parameters for unnest."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(number)]


def listed(texts: tuple[str, ...]) -> str | None:
    """Encode texts for one column; None if there are none."""
    return _encoder.encode(texts).decode() if texts else None


def new_row(new: NewTask, placement: "Placement", *, awaited: bool = False, waiting: bool = False) -> Row:
    """Return the parameters of enqueue.sql for one task, after the clock."""
    checked = (new.idempotency_key, new.fingerprint, listed(new.after))
    times = (new.run_at, new.delay, new.expires_at, new.expires_in)
    return (*times, waiting, *plain_row(new, placement), *checked, awaited)


def plain_row(new: NewTask, placement: "Placement") -> Row:
    """Return the columns of a task without key, fingerprint or predecessors: PLAIN_COLUMNS."""
    return (
        new.id, new.type, new.payload, new.root, new.queue, new.tenant, new.priority, placement.boost,
        new.max_attempts, new.timeout, new.next, new.result_into, listed(new.secret), new.trace,
        new.enqueued_by, placement.stripe, placement.lane, placement.key,
    )  # fmt: skip


def error_columns(error: Error | None) -> tuple[str | None, str | None, str | None]:
    return (None, None, None) if error is None else (error.type, error.message, error.traceback)
