"""Rows to tasks and back. Instants and durations are whole microseconds in the file."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from ..._model.attempt import Attempt
from ..._model.state import State
from ..._model.task import Error, NewTask, Progress, Task, TaskId, rank_of

Row: TypeAlias = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATES = {state.value: state for state in State}
_texts = msgspec.json.Decoder(tuple[str, ...])
_rows = msgspec.json.Decoder(list[list[Any]])
_encoder = msgspec.json.Encoder()


def instant(at: datetime) -> int:
    """Microseconds from 1970 to `at`."""
    return (at - _EPOCH) // _MICROSECOND


def optional_instant(at: datetime | None) -> int | None:
    """The same, or None for None."""
    return None if at is None else (at - _EPOCH) // _MICROSECOND


def duration(of: timedelta | None) -> int | None:
    """Microseconds of a duration, or None for None."""
    return None if of is None else of // _MICROSECOND


def moment(microseconds: int) -> datetime:
    """The instant that so many microseconds after 1970 are."""
    return _EPOCH + timedelta(microseconds=microseconds)


class Moments(dict[Any, Any]):
    """Instants of one batch. Many are equal, and making one costs ten times as much as finding it."""

    def __missing__(self, microseconds: int) -> datetime:
        made = self[microseconds] = moment(microseconds)
        return made


def task_reader() -> Callable[[Row], Task]:
    """Reads tasks off the rows of one batch; their columns are those of tasks.sql, in its order."""
    moments = Moments({None: None})

    def read(row: Row) -> Task:
        # Taken apart by position: the claims of a busy worker come through here, every microsecond counts.
        (id_, type_, payload, root, queue, tenant, priority, boost, state, attempt, max_attempts, fence,
         run_at, created_at, claimed_at, finished_at, timeout, session, worker, ran_for, cancel_requested,
         fraction, message, result, error_type, error_message, error_traceback, idempotency_key, fingerprint,
         next_, after, result_into, secret, trace, enqueued_by) = row  # fmt: skip
        return Task(
            id_, type_, payload, root, queue, tenant, priority, boost, _STATES[state], attempt, max_attempts,
            fence, moments[run_at], moments[created_at], moments[claimed_at], moments[finished_at],
            None if timeout is None else timedelta(microseconds=timeout), session, worker, ran_for,
            cancel_requested == 1, None if fraction is None else Progress(fraction=fraction, message=message),
            result, _error(error_type, error_message, error_traceback), idempotency_key, fingerprint, next_,
            () if after is None else _texts.decode(after), result_into,
            () if secret is None else _texts.decode(secret), trace, enqueued_by,
        )  # fmt: skip

    return read


def read_tasks(rows: Sequence[Row]) -> list[Task]:
    """The tasks of one batch of rows."""
    return list(map(task_reader(), rows))


def read_leased(text: bytes, read_whole: Callable[[list[int]], list[Task]]) -> list[Task]:
    """Read the tasks of leased.sql; `read_whole` reads by rowid those that it gives only in part."""
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


def new_row(new: NewTask, state: State, run_at: datetime, now: int) -> Row:
    """The parameters of enqueue.sql, in its order."""
    return (
        new.id,
        new.type,
        new.payload,
        new.root,
        new.queue,
        new.tenant,
        new.priority,
        new.boost,
        state.value,
        new.max_attempts,
        instant(run_at),
        rank_of(run_at, new.boost),
        now,
        duration(new.timeout),
        new.idempotency_key,
        new.fingerprint,
        new.next,
        _list(new.after),
        new.result_into,
        _list(new.secret),
        new.trace,
        new.enqueued_by,
    )


def changed_row(task: Task, place: tuple[str, str]) -> dict[str, Any]:
    """Everything about a task that can change, as parameters of keep.sql; its lane and its key."""
    return {
        "id": task.id,
        "payload": task.payload,
        "state": task.state.value,
        "attempt": task.attempt,
        "fence": task.fence,
        "run_at": instant(task.run_at),
        "rank": task.rank,
        "finished_at": optional_instant(task.finished_at),
        "session": task.session,
        "duration": task.duration,
        "cancel_requested": int(task.cancel_requested),
        "progress_fraction": None if task.progress is None else task.progress.fraction,
        "progress_message": None if task.progress is None else task.progress.message,
        "result": task.result,
        **error_row(task.error),
        "lane": place[0],
        "key": place[1],
    }


def error_row(error: Error | None) -> dict[str, str | None]:
    """The three columns of an error."""
    return {
        "error_type": None if error is None else error.type,
        "error_message": None if error is None else error.message,
        "error_traceback": None if error is None else error.traceback,
    }


def read_permits(text: str) -> tuple[str, ...]:
    """The keys in a list of permits."""
    return _texts.decode(text)


def permits_row(keys: Sequence[str]) -> str | None:
    """A list of permits; None for none."""
    return _encoder.encode(keys).decode() if keys else None


def read_attempt(task_id: TaskId, row: Row) -> Attempt:
    """The attempt of one row of attempts.sql."""
    fence, number, worker, claimed_at, finished_at, ran_for, outcome, *error, trace = row
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
    )


def _error(type_: str | None, message: str | None, traceback: str | None) -> Error | None:
    return None if type_ is None else Error(type=type_, message=message or "", traceback=traceback)


def _list(texts: tuple[str, ...]) -> str | None:
    return _encoder.encode(texts).decode() if texts else None
