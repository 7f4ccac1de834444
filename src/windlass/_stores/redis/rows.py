"""Tasks as Redis has them: a hash of what changes often, and a document of the rest.

The hash has fields of one letter. Instants are whole microseconds since 1970.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ..._model.attempt import Attempt
from ..._model.state import State
from ..._model.task import DAMAGED, Error, Progress, Task, TaskId
from .keys import NO_PLACE, SEPARATOR, group_of

Row: TypeAlias = Sequence[Any]
Value: TypeAlias = str | bytes | int | float

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
        bool(dependents),
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
    return Stored(task, number(VERSION), place, (), None, bool(fields["D"]))


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


def changed_fields(before: Stored | None, after: Stored) -> tuple[list[Value], list[str], bool]:
    """Compare a task with what was read: fields of its hash to set (name and value in turn) and to delete.

    Also return whether its document changes.
    """
    set_to: list[Value] = [VERSION, after.version]
    gone: list[str] = []
    if before is None:
        task = after.task
        set_to += ("q", group_of(task.queue, task.type, task.tenant))
        changed = [one for one in _TASK_FIELDS if getattr(task, one[0]) is not None]
    else:
        old, new = before.task, after.task
        changed = [one for one in _TASK_FIELDS if getattr(old, one[0]) is not getattr(new, one[0])]
    for attribute, name, write in changed:
        value = write(getattr(after.task, attribute))
        if value is not None:
            set_to += (name, value)
        elif before is not None:
            gone.append(name)
    for attribute, name, write in _STORED_FIELDS:
        was = None if before is None else write(getattr(before, attribute))
        value = write(getattr(after, attribute))
        if value != was:
            set_to += (name, "" if value is None else value)
    is_other = before is None or any(
        getattr(before.task, one) is not getattr(after.task, one) for one in _IN_DOCUMENT
    )
    return set_to, gone, is_other


def _as_instant(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def _encoded(value: object) -> bytes | None:
    return None if value is None else encode(value)


def _if_any(value: Any) -> Any:
    return value or None


def _as_it_is(value: Any) -> Any:
    return value


_TASK_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("state", "s", lambda state: state.value),
    ("fence", "f", _if_any),
    ("attempt", "a", _if_any),
    ("run_at", "r", _as_instant),
    ("created_at", "c", _as_instant),
    ("boost", "b", _if_any),
    ("expires_at", "e", _as_instant),
    ("claimed_at", "C", _as_instant),
    ("session", "S", lambda session: session or ""),  # Empty is none: one command less for each settlement.
    ("worker", "w", _as_it_is),
    ("finished_at", "z", _as_instant),
    ("duration", "d", lambda duration: None if duration is None else repr(duration)),
    ("unhandled_since", "u", _as_instant),
    ("cancel_requested", "x", lambda asked: "1" if asked else None),
    ("result", "R", _as_it_is),
    ("error", "E", _encoded),
    ("progress", "g", _encoded),
    ("cancelled_by", "B", _as_it_is),
    ("cancel_reason", "Y", _as_it_is),
    ("failure", "F", _as_it_is),
)
"""Attributes of a task, the fields of its hash, and how they are written."""

_STORED_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("outcome", "o", _as_it_is),
    ("place", "l", _if_any),
    ("permits", "P", lambda permits: PERMITS.join(permits) or None),
    ("has_dependents", "D", lambda has: "1" if has else None),
)
_IN_DOCUMENT = (
    *("payload", "root", "priority", "max_attempts", "timeout", "idempotency_key", "fingerprint", "next"),
    *("after", "result_into", "secret", "trace", "enqueued_by"),
)
