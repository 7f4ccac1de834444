"""Tasks as Redis has them: each is one string, its row.

A row begins with numbers of fixed width, which scripts read and write (lua/parts/row.lua). Then follow when
it expires, if it does, the group and, once it was claimed, the lease, which scripts write too: numbers,
session, worker, permits and progress. Then what only Python reads: what else may change, and the document of
what does not. A long document has a key of its own, so that it is not copied whenever its task changes.
Instants are whole microseconds since 1970, 0 for none.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct as Format
from struct import error as FormatError  # noqa: N812  it is an exception

import msgspec
from msgspec import Struct

from ..._model.brief import Brief
from ..._model.state import State
from ..._model.task import DAMAGED, Error, NewTask, Progress, Task, TaskId
from .keys import NO_PLACE, SEPARATOR, group_of, packed_trace, unpacked_trace

LONGEST_INSIDE = 1_000
"""Bytes of the longest document that is part of its row."""

NUMBERS = ">I4I4I2c1BI7I2I4I4"
"""The numbers of a row, as Lua's `struct` has them.

Version, fence, attempt, state, flags; when the task was due; the lengths of expiry and group, lease, and what
else may change.
"""

LEASE = ">dI2I2I4I4"
"""The numbers of a lease: when the task was claimed; the lengths of session, worker, permits and progress."""

VERSION_BYTES = 4
"""The version comes first. A commit is refused if it has changed since the task was read."""

DUE = slice(12, 19)
"""Where the instant is that a task was due at."""

STATE_AT = 10  # where the letter of the state is
HEAD_BYTES = 12  # the start of a row, to the flags: what changes of a task when another begins to need it
PERMITS = "\n"  # between the keys of permits

_format = Format(">IIHcB7sHII")
_expiry = Format(">d")
_lease = Format(">dHHII")
_version = Format(">I")
_CANCEL, _DOCUMENT_OUTSIDE, _DEPENDENTS, _EXPIRES = 1, 2, 4, 8  # flags
_LETTERS = {
    State.WAITING: b"w",
    State.SCHEDULED: b"s",
    State.READY: b"r",
    State.RUNNING: b"R",
    State.COMPLETED: b"c",
    State.CANCELLED: b"x",
    State.DEAD: b"d",
}
STATES = {letter: state for state, letter in _LETTERS.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = 250_000_000_000_000_000  # microseconds: the year 9892
_progress = msgspec.msgpack.Decoder(Progress)
encode = msgspec.msgpack.Encoder().encode


class _Changing(Brief, Struct, frozen=True, gc=False, omit_defaults=True):
    """What may change of a task, except for what scripts change."""

    run_at: int | None = msgspec.field(name="r", default=None)  # None: when it was due
    created_at: int | None = msgspec.field(name="c", default=None)  # None: when it was due
    boost: int = msgspec.field(name="b", default=0)
    finished_at: int | None = msgspec.field(name="z", default=None)
    duration: float | None = msgspec.field(name="d", default=None)
    outcome: str | None = msgspec.field(name="o", default=None)  # of the attempt that completed it
    unhandled_since: int | None = msgspec.field(name="u", default=None)
    result: bytes | None = msgspec.field(name="R", default=None)
    error: Error | None = msgspec.field(name="E", default=None)
    cancelled_by: str | None = msgspec.field(name="B", default=None)
    cancel_reason: str | None = msgspec.field(name="Y", default=None)
    failure: str | None = msgspec.field(name="F", default=None)
    place: str = msgspec.field(name="l", default=NO_PLACE)  # among the ready tasks of its queue


class _Document(Brief, Struct, frozen=True, gc=False, omit_defaults=True):
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
    trace: bytes | None = msgspec.field(name="c", default=None)  # see `packed_trace`
    enqueued_by: str = msgspec.field(name="b", default="")


IN_DOCUMENT = frozenset(_Document.__struct_fields__)
"""Attributes of a task that its document has."""

_changing = msgspec.msgpack.Decoder(_Changing)
_UNCHANGED = _Changing()
_documents = msgspec.msgpack.Decoder(_Document)


class Stored(Brief, Struct, frozen=True, gc=False):
    """A task as it was read, with what only the store needs to know of it."""

    task: Task
    version: int
    due: int  # the instant of its `due_at`
    document: bytes  # b"": it has a key of its own
    place: str = NO_PLACE
    permits: tuple[str, ...] = ()
    outcome: str | None = None
    has_dependents: bool = False  # whether tasks have waited for it


@lru_cache(maxsize=256)  # Tasks of a batch have many in common.
def instant(moment: datetime) -> int:
    """Return an instant in microseconds."""
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=256)
def moment(instant: bytes | float | str) -> datetime:
    """Return the instant of these microseconds."""
    return _EPOCH + timedelta(microseconds=int(instant))


def instant_bytes(instant: int) -> bytes:
    """Return an instant as a row has it."""
    return instant.to_bytes(7)


def microseconds(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return duration // _MICROSECOND


# -- read --------------------------------------------------------------------------------------------


def read_task(task_id: TaskId, row: bytes, document: bytes = b"") -> Stored:
    """Read a task from its row, and its document if that has a key of its own."""
    try:
        return _read(task_id, row, document)
    except (ValueError, KeyError, TypeError, OverflowError, FormatError):
        return _salvaged(task_id, row, document)


def _read(task_id: TaskId, row: bytes, document: bytes) -> Stored:
    version, fence, attempt, letter, flags, due, of_group, of_lease, of_changing = _format.unpack_from(row)
    group, expires = row[_format.size : (at := _format.size + of_group)], 0.0
    if flags & _EXPIRES:
        (expires,), group = _expiry.unpack_from(group), group[_expiry.size :]
    queue, type_name, tenant = _names(group)
    claimed, session, worker, permits, progress = _lease_of(row[at : (at := at + of_lease)])
    other = _changing.decode(row[at : at + of_changing]) if of_changing else _UNCHANGED
    at += of_changing
    rest = _documents.decode(document if flags & _DOCUMENT_OUTSIDE else row[at:])
    state, due_at = STATES[letter], moment(due := int.from_bytes(due))
    task = Task(
        id=task_id,
        type=type_name,
        payload=rest.payload,
        root=rest.root or task_id,
        queue=queue,
        tenant=tenant,
        priority=rest.priority,
        boost=other.boost,
        state=state,
        attempt=attempt,
        max_attempts=rest.max_attempts,
        fence=fence,
        run_at=due_at if other.run_at is None else moment(other.run_at),
        created_at=due_at if other.created_at is None else moment(other.created_at),
        claimed_at=moment(claimed) if claimed else None,
        finished_at=_moment(other.finished_at),
        timeout=None if rest.timeout is None else timedelta(microseconds=rest.timeout),
        session=session.decode() or None,
        worker=worker.decode() or None,
        duration=other.duration,
        cancel_requested=bool(flags & _CANCEL),
        progress=_progress.decode(progress) if progress else None,
        result=other.result,
        error=other.error,
        idempotency_key=rest.idempotency_key,
        fingerprint=rest.fingerprint,
        next=rest.next,
        after=rest.after,
        result_into=rest.result_into,
        secret=rest.secret,
        trace=unpacked_trace(rest.trace),
        enqueued_by=rest.enqueued_by,
        unhandled_since=_moment(other.unhandled_since),
        expires_at=moment(expires) if expires else None,
        cancelled_by=other.cancelled_by,
        cancel_reason=other.cancel_reason,
        failure=other.failure,
    )
    return Stored(
        task,
        version,
        due,
        row[at:],
        other.place if state is State.READY else NO_PLACE,
        tuple(permits.decode().split(PERMITS)) if permits else (),
        other.outcome,
        bool(flags & _DEPENDENTS),
    )


def _lease_of(block: bytes) -> tuple[float, bytes, bytes, bytes, bytes]:
    """Return when a task was claimed, its session, worker, permits and progress."""
    if not block:
        return 0.0, b"", b"", b"", b""
    claimed, of_session, of_worker, of_permits, of_progress = _lease.unpack_from(block)
    session = block[_lease.size : (at := _lease.size + of_session)]
    worker, permits = block[at : (at := at + of_worker)], block[at : (at := at + of_permits)]
    return claimed, session, worker, permits, block[at : at + of_progress]


@lru_cache(maxsize=4096)
def _names(group: bytes) -> tuple[str, str, str]:
    """Return the queue, the type and the tenant of a group."""
    queue, type_name, tenant = group.decode().split(SEPARATOR)
    return queue, type_name, tenant


def _moment(instant: int | None) -> datetime | None:
    return None if instant is None else moment(instant)


def _salvaged(task_id: TaskId, row: bytes, document: bytes) -> Stored:
    """Read what is left of a damaged task, so that it hides no other and can be discarded."""
    numbers = _format.unpack_from(row.ljust(_format.size, b"\0"))
    version, fence, attempt, letter, flags, due, of_group, of_lease, of_changing = numbers
    at, skipped = _format.size, _expiry.size if flags & _EXPIRES else 0
    parts = row[at + skipped : (at := at + of_group)].decode(errors="replace").split(SEPARATOR)
    queue, type_name, tenant = (*parts, "", "", "")[:3]
    session, permits = "", ""
    with suppress(ValueError, FormatError):
        _, holder, _, held, _ = _lease_of(row[at : at + of_lease])
        session, permits = holder.decode(errors="replace"), held.decode()
    inside = row[at + of_lease + of_changing :]
    due = int.from_bytes(due)
    due_at = moment(due) if due < _LATEST else _EPOCH
    is_outside = bool(flags & _DOCUMENT_OUTSIDE)
    other = _UNCHANGED
    with suppress(ValueError, FormatError):
        other = _changing_of(row)
    task = Task(
        id=task_id,
        type=type_name,
        payload=(document or b"null") if is_outside else inside,
        root=task_id,
        queue=queue,
        tenant=tenant,
        priority=0,
        boost=other.boost,
        state=STATES.get(letter, State.DEAD),
        attempt=attempt,
        max_attempts=1,
        fence=fence,
        run_at=due_at,
        created_at=due_at,
        finished_at=_moment(other.finished_at),
        session=session or None,
        error=Error(type=DAMAGED, message="stored damaged: its row or its document cannot be read"),
    )
    return Stored(
        task,
        version,
        instant(due_at),
        b"" if is_outside else inside,
        other.place,
        tuple(permits.split(PERMITS)) if permits else (),
        has_dependents=bool(flags & _DEPENDENTS),
    )


def _changing_of(row: bytes) -> _Changing:
    *_, of_group, of_lease, of_changing = _format.unpack_from(row)
    at = _format.size + of_group + of_lease
    return _changing.decode(row[at : at + of_changing]) if of_changing else _UNCHANGED


def read_cancellation(row: bytes) -> tuple[str | None, str | None]:
    """Return who asked the task of a row to stop, and why."""
    other = _changing_of(row)
    return other.cancelled_by, other.cancel_reason


def read_permits(row: bytes | None) -> list[str]:
    """Return the permits that the task of a row holds."""
    if row is None or len(row) < _format.size:
        return []
    *_, of_group, of_lease, _ = _format.unpack_from(row)
    at = _format.size + of_group
    _, _, _, permits, _ = _lease_of(row[at : at + of_lease])
    return permits.decode().split(PERMITS) if permits else []


# -- write -------------------------------------------------------------------------------------------


def document_of(task: Task | NewTask) -> bytes:
    """Return the document of a task."""
    return encode(
        _Document(
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
            trace=packed_trace(task.trace),
            enqueued_by=task.enqueued_by,
        )
    )


def version_of(stored: Stored | None) -> bytes:
    """Return the version of a task as its row begins with it; b"" for a task that does not exist."""
    return b"" if stored is None else _version.pack(stored.version)


def row_of(stored: Stored) -> bytes:
    """Return the row of a task."""
    task = stored.task
    due = stored.due
    group = group_of(task.queue, task.type, task.tenant).encode()
    if task.expires_at is not None:
        group = _expiry.pack(instant(task.expires_at)) + group
    lease = _lease_block(stored)
    changing = changing_part(task, due, stored.outcome, stored.place)
    numbers = _format.pack(
        stored.version,
        task.fence,
        task.attempt,
        _LETTERS[task.state],
        (_CANCEL if task.cancel_requested else 0)
        | (0 if stored.document else _DOCUMENT_OUTSIDE)
        | (_DEPENDENTS if stored.has_dependents else 0)
        | (0 if task.expires_at is None else _EXPIRES),
        instant_bytes(due),
        len(group),
        len(lease),
        len(changing),
    )
    return b"".join((numbers, group, lease, changing, stored.document))


def changing_part(task: Task, due: int, outcome: str | None, place: str = NO_PLACE) -> bytes:
    """Return what else may change of a task, as its row has it."""
    run_at, created_at = instant(task.run_at), instant(task.created_at)
    part = _Changing(
        None if run_at == due else run_at,
        None if created_at == due else created_at,
        task.boost,
        _instant(task.finished_at),
        task.duration,
        outcome,
        _instant(task.unhandled_since),
        task.result,
        task.error,
        task.cancelled_by,
        task.cancel_reason,
        task.failure,
        place,
    )
    return b"" if part == _UNCHANGED else encode(part)


def _lease_block(stored: Stored) -> bytes:
    """Return the lease of a row; b"" if the task was never claimed."""
    task = stored.task
    session, worker = (task.session or "").encode(), (task.worker or "").encode()
    permits = PERMITS.join(stored.permits).encode()
    progress = b"" if task.progress is None else encode(task.progress)
    if task.claimed_at is None and not (session or worker or permits or progress):
        return b""
    parts = session, worker, permits, progress
    return b"".join((_lease.pack(_instant(task.claimed_at) or 0, *map(len, parts)), *parts))


def _instant(moment: datetime | None) -> int | None:
    return None if moment is None else instant(moment)
