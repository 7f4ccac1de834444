"""Read records and pages of them from the rows of a SQL store."""

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder

from .._model.filter import Page, Slice
from .._model.queue import QueueSettings
from .._model.record import KINDS, Audit, Record, Session, StoredRecord, Worker
from .rules import refusals

Q = TypeVar("Q")
S = TypeVar("S")

_worker = Decoder(Worker)


class RecordRows(NamedTuple):
    """The statement that selects the records of a kind, how to read a row, and what pages are sorted by."""

    statement: str
    read: Callable[[Sequence[Any]], Any]
    name: Callable[[Any], str]


def record_rows(moment: Callable[[Any], datetime]) -> dict[object, RecordRows]:
    """Return the rows of every kind of record; `moment` reads a timestamp as the store holds it."""

    def read_session(row: Sequence[Any]) -> Session:
        session, about, *times = row
        started_at, beat_at, expires_at = map(moment, times)
        worker = _worker.decode(about)
        return Session(
            id=session, worker=worker, started_at=started_at, beat_at=beat_at, expires_at=expires_at
        )

    def read_audit(row: Sequence[Any]) -> Audit:
        values = dict(zip(Audit.__struct_fields__, row, strict=True))
        return Audit(**values | {"at": moment(values["at"]), "task_id": values["task_id"] or None})

    return {
        QueueSettings: RecordRows("queues", _body_reader(QueueSettings), attrgetter("name")),
        Session: RecordRows("sessions", read_session, attrgetter("id")),
        Audit: RecordRows("audits", read_audit, attrgetter("id")),
        **{kind: RecordRows("records", _body_reader(kind), attrgetter("name")) for kind in KINDS},
    }


def _body_reader(kind: Any) -> Callable[[Sequence[Any]], Any]:
    decoder = Decoder(kind)
    return lambda row: decoder.decode(row[0])


def slice_of(found: Sequence[Q], page: Page, read: Callable[[Q], S], name: Callable[[S], str]) -> Slice[S]:
    """Read one page from rows that were selected with a limit of one more, to know whether there are more."""
    items = tuple(map(read, found[: page.limit]))
    return Slice(items=items, cursor=name(items[-1]) if items and len(found) > len(items) else None)


def check_expected(
    record: QueueSettings | StoredRecord, expected: Record | UnsetType | None, stored: Record | None
) -> None:
    """Raise Conflict unless what is stored is as expected, or is already the record that replaces it."""
    if expected is not UNSET and stored not in (expected, record):
        raise refusals.changed_meanwhile(record)
