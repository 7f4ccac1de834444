"""Tasks as Redis has them: a hash of what changes often, and a document of the rest.

The hash has fields of one letter. Instants are whole microseconds since 1970.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ..._model.attempt import Attempt
from ..._model.state import State
from ..._model.task import DAMAGED, Error, Progress, Task, TaskId
from .keys import NO_PLACE, SEPARATOR, group_of

Row: TypeAlias = Sequence[Any]

VERSION = "v"
"""Counts the changes of a task: a commit is refused if it has risen since the task was read."""

FIELDS = (
    VERSION,
    "s",  # state
    "q",  # group: queue, type, tenant
    "f",  # fence
    "a",  # attempt
    "r",  # run_at
    "c",  # created_at
    "b",  # boost
    "e",  # expires_at
    "C",  # claimed_at
    "S",  # session
    "w",  # worker
    "z",  # finished_at
    "d",  # duration
    "o",  # outcome of the attempt that completed it
    "u",  # unhandled_since
    "x",  # cancel_requested
    "R",  # result
    "E",  # error
    "g",  # progress
    "B",  # cancelled_by
    "Y",  # cancel_reason
    "F",  # failure
    "l",  # place among the ready tasks of its queue
    "P",  # permits that it holds while it runs
    "D",  # whether tasks have waited for it
)
"""Fields of a task's hash, in the order of rows."""

PERMITS = "\n"  # between the keys of permits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATES = {state.value.encode(): state for state in State}
_errors = msgspec.msgpack.Decoder(Error)
_progress = msgspec.msgpack.Decoder(Progress)
_attempts = msgspec.msgpack.Decoder(Attempt)
encode = msgspec.msgpack.Encoder().encode


class Document(Struct, frozen=True, gc=False, omit_defaults=True):
    """What seldom or never changes of a task."""

    payload: bytes = msgspec.field(name="p")
    root: str = msgspec.field(name="r", default="")  # "": itself
    priority: int = msgspec.field(name="i", default=0)
    max_attempts: int = msgspec.field(name="m", default=8)
    timeout: float | None = msgspec.field(name="t", default=None)  # microseconds
    idempotency_key: str | None = msgspec.field(name="k", default=None)
    fingerprint: str | None = msgspec.field(name="f", default=None)
    next: bytes | None = msgspec.field(name="n", default=None)
    after: tuple[str, ...] = msgspec.field(name="a", default=())
    result_into: str | None = msgspec.field(name="o", default=None)
    secret: tuple[str, ...] = msgspec.field(name="s", default=())
    trace: str | None = msgspec.field(name="c", default=None)
    enqueued_by: str = msgspec.field(name="b", default="")


_documents = msgspec.msgpack.Decoder(Document)


class Stored(Struct, frozen=True, gc=False):
    """A task as it was read, with what only the store needs to know of it."""

    task: Task
    version: int
    place: str = NO_PLACE
    permits: tuple[str, ...] = ()
    outcome: str | None = None
    has_dependents: bool = False


def instant(moment: datetime) -> int:
    """Return an instant in microseconds."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(instant: bytes | float | str) -> datetime:
    """Return the instant of these microseconds."""
    return _EPOCH + timedelta(microseconds=int(instant))


def microseconds(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return duration // _MICROSECOND


# -- read --------------------------------------------------------------------------------------------


def read_task(task_id: TaskId, row: Row, document: bytes | None) -> Stored:
    """Read a task from the fields of its hash, in the order of FIELDS, and its document."""
    try:
        return _read(task_id, row, _documents.decode(document or b""))
    except (ValueError, KeyError, TypeError, OverflowError):
        return _salvaged(task_id, row, document)


def _read(task_id: TaskId, row: Row, rest: Document) -> Stored:
    (
        version, state, group, fence, attempt, run_at, created_at, boost, expires_at, claimed_at, session,
        worker, finished_at, duration, outcome, unhandled, cancel, result, error, progress, by, why,
        failure, place, permits, dependents,
    ) = row  # fmt: skip
    queue, type_name, tenant = group.decode().split(SEPARATOR)
    task = Task(
        id=task_id,
        type=type_name,
        payload=rest.payload,
        root=rest.root or task_id,
        queue=queue,
        tenant=tenant,
        priority=rest.priority,
        boost=int(boost) if boost else 0,
        state=_STATES[state],
        attempt=int(attempt) if attempt else 0,
        max_attempts=rest.max_attempts,
        fence=int(fence) if fence else 0,
        run_at=moment(run_at),
        created_at=moment(created_at),
        claimed_at=moment(claimed_at) if claimed_at else None,
        finished_at=moment(finished_at) if finished_at else None,
        timeout=None if rest.timeout is None else timedelta(microseconds=rest.timeout),
        session=session.decode() if session else None,
        worker=None if worker is None else worker.decode(),
        duration=float(duration) if duration else None,
        cancel_requested=cancel is not None,
        progress=_progress.decode(progress) if progress else None,
        result=result,
        error=_errors.decode(error) if error else None,
        idempotency_key=rest.idempotency_key,
        fingerprint=rest.fingerprint,
        next=rest.next,
        after=rest.after,
        result_into=rest.result_into,
        secret=rest.secret,
        trace=rest.trace,
        enqueued_by=rest.enqueued_by,
        unhandled_since=moment(unhandled) if unhandled else None,
        expires_at=moment(expires_at) if expires_at else None,
        cancelled_by=None if by is None else by.decode(),
        cancel_reason=None if why is None else why.decode(),
        failure=failure.decode() if failure else None,
    )
    return Stored(
        task,
        int(version),
        place.decode() if place else NO_PLACE,
        tuple(permits.decode().split(PERMITS)) if permits else (),
        outcome.decode() if outcome else None,
        dependents is not None,
    )


def _salvaged(task_id: TaskId, row: Row, document: bytes | None) -> Stored:
    """Read what is left of a damaged task, so that it hides no other and can be discarded."""
    fields = dict(zip(FIELDS, row, strict=True))

    def number(name: str) -> int:
        try:
            return int(fields[name] or 0)
        except ValueError:
            return 0

    parts = (fields["q"] or b"").decode(errors="replace").split(SEPARATOR)
    queue, type_name, tenant = (*parts, "", "", "")[:3]
    error = Error(type=DAMAGED, message="stored damaged: its document or a field cannot be read")
    task = Task(
        id=task_id,
        type=type_name,
        payload=b"null" if document is None else document,
        root=task_id,
        queue=queue,
        tenant=tenant,
        priority=0,
        boost=number("b"),
        state=_STATES.get(fields["s"], State.DEAD),
        attempt=number("a"),
        max_attempts=1,
        fence=number("f"),
        run_at=moment(number("r")),
        created_at=moment(number("c")),
        session=(fields["S"] or b"").decode(errors="replace") or None,
        finished_at=moment(number("z")) if fields["z"] else None,
        error=error,
    )
    place = (fields["l"] or b"").decode(errors="replace")
    return Stored(task, number(VERSION), place, (), None, fields["D"] is not None)


def read_attempt(data: bytes) -> Attempt:
    """Read the record of an attempt."""
    return _attempts.decode(data)


# -- write -------------------------------------------------------------------------------------------


def document_of(task: Task) -> bytes:
    """Return the document of a task."""
    return encode(
        Document(
            payload=task.payload,
            root="" if task.root == task.id else task.root,
            priority=task.priority,
            max_attempts=task.max_attempts,
            timeout=None if task.timeout is None else microseconds(task.timeout),
            idempotency_key=task.idempotency_key,
            fingerprint=task.fingerprint,
            next=task.next,
            after=task.after,
            result_into=task.result_into,
            secret=task.secret,
            trace=task.trace,
            enqueued_by=task.enqueued_by,
        )
    )


IN_DOCUMENT = (
    *("payload", "root", "priority", "max_attempts", "timeout", "idempotency_key", "fingerprint", "next"),
    *("after", "result_into", "secret", "trace", "enqueued_by"),
)


def fields_of(stored: Stored) -> dict[str, str | bytes | int | float]:
    """Return the fields of a task's hash; those without a value are left out."""
    task = stored.task
    fields: dict[str, str | bytes | int | float] = {
        VERSION: stored.version,
        "s": task.state.value,
        "q": group_of(task.queue, task.type, task.tenant),
        "r": instant(task.run_at),
        "c": instant(task.created_at),
    }
    if task.fence:
        fields["f"] = task.fence
    if task.attempt:
        fields["a"] = task.attempt
    if task.boost:
        fields["b"] = task.boost
    for name, when in _instants(task).items():
        if when is not None:
            fields[name] = instant(when)
    given: Mapping[str, str | bytes | float | None] = {
        "S": task.session,
        "w": task.worker,
        "d": None if task.duration is None else repr(task.duration),
        "o": stored.outcome,
        "x": "1" if task.cancel_requested else None,
        "R": task.result,
        "E": None if task.error is None else encode(task.error),
        "g": None if task.progress is None else encode(task.progress),
        "B": task.cancelled_by,
        "Y": task.cancel_reason,
        "F": task.failure,
        "l": stored.place or None,
        "P": PERMITS.join(stored.permits) or None,
        "D": "1" if stored.has_dependents else None,
    }
    fields.update((name, value) for name, value in given.items() if value is not None)
    return fields


def _instants(task: Task) -> dict[str, datetime | None]:
    return {
        "e": task.expires_at,
        "C": task.claimed_at,
        "z": task.finished_at,
        "u": task.unhandled_since,
    }
