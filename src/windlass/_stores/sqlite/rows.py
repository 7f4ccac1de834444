"""Rows to tasks and back, and the statements with the columns of a task in them.

Instants and durations are whole microseconds in the file.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeAlias

import msgspec

from ..._model.attempt import Attempt
from ..._model.state import State
from ..._model.task import Error, NewTask, Progress, Task, TaskId, rank_of
from ..salvage import salvaged_task
from ..statements import fill, load, slots_of

Row: TypeAlias = tuple[Any, ...]

TASK_COLUMNS = (
    "id", "type", "payload", "root", "queue", "tenant", "priority", "boost", "state", "attempt",
    "max_attempts", "fence", "run_at", "created_at", "claimed_at", "finished_at", "timeout", "session",
    "worker", "duration", "cancel_requested", "progress_fraction", "progress_message", "result",
    "error_type", "error_message", "error_traceback", "idempotency_key", "fingerprint", "next", "after",
    "result_into", "secret", "trace", "enqueued_by", "unhandled_since", "expires_at", "cancelled_by",
    "cancel_reason", "failure",
)  # fmt: skip
"""What is read of a task, in the order that `task_reader` expects."""

NEW_COLUMNS = (
    "id", "type", "payload", "root", "queue", "tenant", "priority", "boost", "state", "attempt",
    "max_attempts", "fence", "run_at", "rank", "created_at", "timeout", "idempotency_key", "fingerprint",
    "next", "after", "result_into", "secret", "trace", "enqueued_by", "expires_at", "lane", "key",
)  # fmt: skip
"""What is written of a new task, in the order of `new_row`."""

_COLUMN_SLOTS = {
    "task_columns": ", ".join(f"task.{column}" for column in TASK_COLUMNS),
    "new_columns": ", ".join(NEW_COLUMNS),
    "new_values": ", ".join("?" for _ in NEW_COLUMNS),
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATES = {state.value: state for state in State}
_texts = msgspec.json.Decoder(tuple[str, ...])
_rows = msgspec.json.Decoder(list[list[Any]])
_rowids = msgspec.json.Decoder(list[int])
_encoder = msgspec.json.Encoder()


# -- statements and parameters -----------------------------------------------------------------------


@cache
def statement(name: str) -> str:
    """Return the text of sql/<name>.sql, with the columns of a task filled in."""
    return filled(name, {})


def filled(name: str, slots: Mapping[str, str]) -> str:
    """Return the same with these slots filled besides."""
    assert __package__
    text = load(__package__, name)
    columns = {slot: _COLUMN_SLOTS[slot] for slot in slots_of(text) & _COLUMN_SLOTS.keys()}
    return fill(text, {**columns, **slots})


def as_json(value: object) -> str:
    """Encode a value as a JSON parameter."""
    return _encoder.encode(value).decode()


def listed(values: Iterable[object]) -> str:
    """Encode many values as one parameter for json_each."""
    return _encoder.encode(list(values)).decode()


def listed_or_none(texts: Sequence[str]) -> str | None:
    """Encode texts for one column; None if there are none."""
    return _encoder.encode(texts).decode() if texts else None


# -- instants ----------------------------------------------------------------------------------------


def instant(at: datetime) -> int:
    """Return the microseconds from 1970 to `at`."""
    return (at - _EPOCH) // _MICROSECOND


def optional_instant(at: datetime | None) -> int | None:
    """Return the same, or None for None."""
    return None if at is None else (at - _EPOCH) // _MICROSECOND


def moment(microseconds: int) -> datetime:
    """Return the instant this many microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _as_bytes(value: str | bytes) -> bytes:
    """SQLite keeps text in a column of bytes if a person writes it there."""
    return value.encode() if isinstance(value, str) else value


class Moments(dict[Any, Any]):
    """The instants of one batch. Many are equal, and a lookup costs a tenth of a construction."""

    def __missing__(self, microseconds: int) -> datetime:
        made = self[microseconds] = moment(microseconds)
        return made


# -- tasks -------------------------------------------------------------------------------------------

_INSTANTS = ("run_at", "created_at", "claimed_at", "finished_at", "unhandled_since", "expires_at")
_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_INSTANTS, moment),
    **dict.fromkeys(("after", "secret"), _texts.decode),
    **dict.fromkeys(("payload", "result", "next"), _as_bytes),
    "timeout": lambda microseconds: timedelta(microseconds=microseconds),
    "cancel_requested": bool,
}
"""How damaged rows are read, column by column."""


def task_reader() -> Callable[[Row], Task]:
    """Return a function that reads a task from a row of TASK_COLUMNS. For one batch: it caches instants."""
    moments = Moments({None: None})

    def read(row: Row) -> Task:
        try:
            # By position, for speed: the claims of a busy worker pass through here.
            (id_, type_, payload, root, queue, tenant, priority, boost, state, attempt, max_attempts, fence,
             run_at, created_at, claimed_at, finished_at, timeout, session, worker, ran_for, cancel_requested,
             fraction, message, result, error_type, error_message, error_traceback, idempotency_key,
             fingerprint, next_, after, result_into, secret, trace, enqueued_by, unhandled_since, expires_at,
             cancelled_by, cancel_reason, failure) = row  # fmt: skip
            if type(payload) is not bytes:
                raise TypeError
            return Task(
                id_, type_, payload, root, queue, tenant, priority, boost, _STATES[state], attempt,
                max_attempts, fence, moments[run_at], moments[created_at], moments[claimed_at],
                moments[finished_at],
                None if timeout is None else timedelta(microseconds=timeout), session, worker, ran_for,
                cancel_requested == 1,
                None if fraction is None else Progress(fraction=fraction, message=message or ""), result,
                _error(error_type, error_message, error_traceback), idempotency_key, fingerprint, next_,
                () if after is None else _texts.decode(after), result_into,
                () if secret is None else _texts.decode(secret), trace, enqueued_by, moments[unhandled_since],
                moments[expires_at], cancelled_by, cancel_reason, failure,
            )  # fmt: skip
        except (ValueError, TypeError, KeyError, OverflowError):
            return salvaged_task(dict(zip(TASK_COLUMNS, row, strict=True)), _READERS)

    return read


def read_tasks(rows: Sequence[Row]) -> list[Task]:
    """Read a batch of rows of TASK_COLUMNS."""
    return list(map(task_reader(), rows))


def read_leased(text: bytes, rowids: str, read_whole: Callable[[list[int]], list[Task]]) -> list[Task]:
    """Read the tasks of leased.sql; `read_whole` reads by rowid those that it gives only in part.

    If one of them is damaged, all are read whole: a payload that is not UTF-8 spoils the text.
    """
    try:
        return _read_leased(text, read_whole)
    except (ValueError, TypeError, OverflowError):
        return read_whole(_rowids.decode(rowids))


def _read_leased(text: bytes, read_whole: Callable[[list[int]], list[Task]]) -> list[Task]:
    moments = Moments({None: None})
    rows = _rows.decode(text)
    rest = [row[-1] for row in rows if row[-1] is not None]
    whole = iter(read_whole(rest) if rest else ())

    def read(row: list[Any]) -> Task:
        (id_, type_, payload, root, queue, tenant, priority, boost, attempt, max_attempts, fence, run_at,
         created_at, claimed_at, timeout, session, worker, idempotency_key, secret, trace, enqueued_by,
         rowid) = row  # fmt: skip
        if rowid is not None:
            return next(whole)
        # By position, in the order of Task: by name it takes five times as long, at every claim.
        return Task(
            id_, type_, payload.encode(), root, queue, tenant, priority, boost, State.RUNNING, attempt,
            max_attempts, fence, moments[run_at], moments[created_at], moments[claimed_at], None,
            None if timeout is None else timedelta(microseconds=timeout), session, worker, None, False, None,
            None, None, idempotency_key, None, None, (), None,
            () if secret is None else _texts.decode(secret), trace, enqueued_by,
        )  # fmt: skip

    return list(map(read, rows))


def new_row(
    new: NewTask, state: State, run_at: datetime, now: int, boost: int, lane_and_key: tuple[str, str]
) -> Row:
    """Return the values of NEW_COLUMNS."""
    timeout = None if new.timeout is None else new.timeout // _MICROSECOND
    due = instant(run_at)
    expires = None if new.expires_in is None and new.expires_at is None else _expiry(new, due, now)
    return (
        new.id, new.type, new.payload, new.root, new.queue, new.tenant, new.priority, boost, state.value,
        0, new.max_attempts, 0, due, rank_of(run_at, boost), now, timeout,
        new.idempotency_key, new.fingerprint, new.next, listed_or_none(new.after) if new.after else None,
        new.result_into, listed_or_none(new.secret) if new.secret else None,
        new.trace, new.enqueued_by, expires, *lane_and_key,
    )  # fmt: skip


def _expiry(new: NewTask, due: int, now: int) -> int | None:
    if new.expires_in is None:
        return optional_instant(new.expires_at)
    return max(due, now) + new.expires_in // _MICROSECOND


def changed_row(task: Task, lane_and_key: tuple[str, str]) -> dict[str, Any]:
    """Return every field of a task that can change, its lane and its key, as parameters of keep.sql."""
    return {
        "id": task.id,
        "payload": task.payload,
        "fingerprint": task.fingerprint,
        "state": task.state.value,
        "attempt": task.attempt,
        "fence": task.fence,
        "run_at": instant(task.run_at),
        "boost": task.boost,
        "rank": task.rank,
        "finished_at": optional_instant(task.finished_at),
        "session": task.session,
        "duration": task.duration,
        "cancel_requested": int(task.cancel_requested),
        "progress_fraction": None if task.progress is None else task.progress.fraction,
        "progress_message": None if task.progress is None else task.progress.message,
        "result": task.result,
        **error_row(task.error),
        "unhandled_since": optional_instant(task.unhandled_since),
        "expires_at": optional_instant(task.expires_at),
        "cancelled_by": task.cancelled_by,
        "cancel_reason": task.cancel_reason,
        "failure": task.failure,
        "lane": lane_and_key[0],
        "key": lane_and_key[1],
    }


def error_row(error: Error | None) -> dict[str, str | None]:
    """Return the three columns of an error."""
    return {f"error_{name}": getattr(error, name, None) for name in ("type", "message", "traceback")}


def read_permits(text: str) -> tuple[str, ...]:
    """Decode the keys of a list of permits."""
    return _texts.decode(text)


def read_running(rows: Sequence[Row]) -> "Counter[str]":
    """Return the number of running tasks under each permit, from the rows of limited.sql."""
    numbers: Counter[str] = Counter()
    for text, number in rows:
        for key in read_permits(text):
            numbers[key] += number
    return numbers


def read_attempt(task_id: TaskId, row: Row) -> Attempt:
    """Read an attempt from a row of attempts.sql."""
    fence, number, worker, claimed_at, finished_at, ran_for, outcome, *error, trace, notes = row
    return Attempt(
        task_id=task_id,
        number=number,
        fence=fence,
        worker=worker,
        claimed_at=moment(claimed_at),
        finished_at=moment(finished_at),
        duration=ran_for,
        outcome=outcome,
        error=_error(*error),
        trace=trace,
        notes=notes,
    )


def _error(type_: str | None, message: str | None, traceback: str | None) -> Error | None:
    return None if type_ is None else Error(type=type_, message=message or "", traceback=traceback)
