"""What operators do to tasks and records, with entries in the audit log."""

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from ..._model.filter import Action, By, Replay
from ..._model.limit import Limit
from ..._model.queue import QueueSettings
from ..._model.record import KINDS, Record, Session, StoredRecord
from ..._model.state import State
from ..._model.step import Applied
from ..._model.task import TaskId
from ..._policy.order.lanes import changes_lanes
from ..records import check_expected
from ..rules.actions import apply as apply_rule
from ..rules.audit import audited_put, audited_removal
from ..rules.questions import Rule
from .claim import relayout
from .queue_layout import Environment, read_settings
from .rule_player import transact, write_audit
from .script import Script, fetch, value
from .unit_of_work import UnitOfWork

_encoder = msgspec.json.Encoder()


def apply(
    env: Environment, action: Action, ids: Sequence[TaskId], states: Collection[State], limit: int
) -> Script[Applied]:
    """Apply an action to those of these tasks that are still in one of the states."""

    def rule(unit: UnitOfWork) -> Rule[Applied]:
        loaded = [task_id for task_id in ids if unit.get(task_id) is not None]
        return apply_rule(unit, action, loaded, states, limit)

    return transact(env, rule, ids, cancelled=ids if isinstance(action, Replay) else ())


# -- records -----------------------------------------------------------------------------------------


def put(
    clock: datetime | None,
    record: QueueSettings | StoredRecord,
    by: By | None,
    expected: Record | UnsetType | None,
) -> Script[Collection[str | None]]:
    """Store a record and audit it; return the queues whose tasks must be moved then (None: all queues).

    Raises Conflict. The lock makes puts of the same record wait for each other, also while there is no row.
    """
    moved: Collection[str | None] = ()
    yield from fetch("lock_record", KINDS.get(type(record), "queue"), record.name)
    before: Record | None = None
    if by is not None or expected is not UNSET:
        before = yield from _stored(type(record), record.name)
        check_expected(record, expected, before)
    if isinstance(record, QueueSettings):
        moved = yield from _put_queue(clock, record)
    elif isinstance(record, Limit):
        moved = yield from relayout.put_limit(clock, record)
    else:
        yield from fetch("put_record", KINDS[type(record)], record.name, _encoder.encode(record).decode())
    if by is not None:
        yield from write_audit([audited_put(before, record, by, (yield from value("now", clock)))])
    return moved


def _stored(kind: type[Record], name: str) -> Script[Record | None]:
    if kind is QueueSettings:
        body = yield from value("queue_settings", name)
    else:
        body = yield from value("get_record", KINDS[kind], name)
    stored: Record | None = None if body is None else msgspec.json.decode(body, type=kind)
    return stored


def _put_queue(clock: datetime | None, settings: QueueSettings) -> Script[list[str]]:
    before = yield from value("queue_settings", settings.name)
    text = _encoder.encode(settings).decode()
    yield from fetch(
        "put_queue", settings.name, settings.paused, settings.stripes, text, settings.is_laned, clock
    )
    yield from fetch("wake", [settings.name])
    if not changes_lanes(None if before is None else read_settings(before), settings):
        return []
    yield from fetch("mark_moving", [settings.name])
    return [settings.name]


def remove(
    clock: datetime | None, kind: type[Record], name: str, by: By | None
) -> Script[tuple[bool, Collection[str | None]]]:
    """Remove a record; return whether it existed, and the queues as `put` does. Audited if it existed."""
    moved: Collection[str | None] = ()
    if kind is QueueSettings:
        removed, moved = (yield from _remove_queue(clock, name)), [name]
    elif kind is Limit:
        moved = yield from relayout.remove_limit(clock, name)
        removed = bool(moved)
    elif kind is Session:
        removed = bool((yield from fetch("remove_session", name)))
    else:
        removed = bool((yield from fetch("remove_record", KINDS[kind], name)))
    if removed and by is not None:
        yield from write_audit([audited_removal(kind, name, by, (yield from value("now", clock)))])
    return removed, moved


def _remove_queue(clock: datetime | None, name: str) -> Script[bool]:
    """Remove a queue's settings; return whether there were any. Wakes workers, as it may have been paused."""
    before = yield from value("queue_settings", name)
    removed = yield from value("remove_queue", name, clock)
    if before is not None and changes_lanes(read_settings(before), None):
        yield from fetch("mark_moving", [name])
    yield from fetch("wake", [name])
    return removed is not None
