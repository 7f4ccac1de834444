"""The audit log: lines in the transaction of what they tell of."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import astuple

from ..._model.filter import By
from ..._model.queue import QueueSettings
from ..._model.record import Audit, Record, StoredRecord
from ..rules.audit import audited_put, audited_removal
from .rows import columns_of
from .script import Script, ask, value

T = TypeVar("T")


def write(lines: Sequence[Audit]) -> Script[None]:
    """Write lines of the log."""
    yield from ask("audit", *columns_of([astuple(line) for line in lines], len(Audit.__struct_fields__)))


def put(
    clock: datetime | None, record: QueueSettings | StoredRecord, by: By | None, putting: Script[T]
) -> Script[T]:
    """Put a record, and say who did."""
    answer = yield from putting
    if by is not None:
        yield from write([audited_put(record, by, (yield from value("now", clock)))])
    return answer


def remove(
    clock: datetime | None, kind: type[Record], name: str, by: By | None, removing: Script[T]
) -> Script[T]:
    """Remove a record, and say who did if there was one, as the answer tells by being true."""
    answer = yield from removing
    if answer and by is not None:
        yield from write([audited_removal(kind, name, by, (yield from value("now", clock)))])
    return answer
