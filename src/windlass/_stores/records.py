"""Read records and pages of them from the rows of a SQL store."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder

from .._model.filter import Page, Slice
from .._model.queue import QueueSettings
from .._model.record import KINDS, Archive, Audit, Record, Session, StoredRecord, Worker
from ..errors import InvalidOption
from .rules import refusals

Q = TypeVar("Q", bound=Sequence[Any])
S = TypeVar("S")

MAX_CHECKED = 10_000
"""Records that a check reads."""


class RecordRows(NamedTuple):
    """The statement that selects the records of a kind, how to read a row, and where its name is.

    A row that cannot be read is None.
    """

    statement: str
    read: Callable[[Sequence[Any]], Any]
    name: int


def record_rows(moment: Callable[[Any], datetime]) -> dict[object, RecordRows]:
    """Return the rows of every kind of record; `moment` reads a timestamp as the store holds it."""

    def read_session(row: Sequence[Any]) -> Session | None:
        session, about, *times = row
        started_at, beat_at, expires_at = map(moment, times)
        worker = _read_worker(about)
        if worker is None:
            return None
        return Session(
            id=session, worker=worker, started_at=started_at, beat_at=beat_at, expires_at=expires_at
        )

    def read_audit(row: Sequence[Any]) -> Audit:
        values = dict(zip(Audit.__struct_fields__, row, strict=True))
        return Audit(**values | {"at": moment(values["at"]), "task_id": values["task_id"] or None})

    return {
        QueueSettings: RecordRows("queues", _body_reader(QueueSettings), 1),
        Session: RecordRows("sessions", read_session, 0),
        Audit: RecordRows("audits", read_audit, 0),
        **{kind: RecordRows("records", _body_reader(kind), 1) for kind in KINDS},
    }


def _body_reader(kind: Any) -> Callable[[Sequence[Any]], Any]:
    read = reader(kind)
    return lambda row: read(row[0])


def reader(kind: type[S]) -> Callable[[str | bytes], S | None]:
    """Return a function that decodes records of a kind; one that cannot be read is None.

    It is as if there were none, until somebody removes or replaces it. `windlass check` reports it.
    """
    decode = Decoder(kind).decode

    def read(body: str | bytes) -> S | None:
        try:
            return decode(body)
        except (ValueError, RecursionError, InvalidOption):
            return None

    return read


def readable(read: Callable[[str | bytes], S | None], bodies: Iterable[str | bytes]) -> list[S]:
    """Decode records; those that cannot be read are left out."""
    return [one for body in bodies if (one := read(body)) is not None]


def read_archive(body: str | bytes) -> Archive:
    """Decode how far history was archived; if that cannot be read, nothing was: then nothing is pruned."""
    return _read_archive(body) or Archive()


def unreadable(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return which records cannot be read, as "limit calls", of rows of kind, name and body."""
    known = ((f"{kind} {name}", _READERS[kind], body) for kind, name, body in rows if kind in _READERS)
    return [which for which, read, body in known if read(body) is None]


_read_worker = reader(Worker)
_read_archive = reader(Archive)
_READERS: dict[str, Callable[[str | bytes], Any]] = {
    "queue": reader(QueueSettings),
    **{name: reader(kind) for kind, name in cast("dict[Any, str]", KINDS).items()},
}


def slice_of(found: Sequence[Q], page: Page, read: Callable[[Q], S | None], name: int = 0) -> Slice[S]:
    """Read one page from rows that were selected with a limit of one more, to know whether there are more.

    Rows that cannot be read are left out. `name` is the column that pages are sorted by.
    """
    rows = found[: page.limit]
    items = tuple(one for row in rows if (one := read(row)) is not None)
    return Slice(items=items, cursor=str(rows[-1][name]) if rows and len(found) > len(rows) else None)


def check_expected(
    record: QueueSettings | StoredRecord, expected: Record | UnsetType | None, stored: Record | None
) -> None:
    """Raise Conflict unless what is stored is as expected, or is already the record that replaces it."""
    if expected is not UNSET and stored not in (expected, record):
        raise refusals.changed_meanwhile(record)
