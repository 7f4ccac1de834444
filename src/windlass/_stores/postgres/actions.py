"""What operators do to tasks and records, with entries in the audit log."""

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from ..._model.filter import By, Change, Replay, Rewrite
from ..._model.limit import Limit
from ..._model.queue import STRICT_MS, QueueSettings
from ..._model.record import KINDS, Record, Session, StoredRecord
from ..._model.state import State
from ..._model.task import TaskId, is_task_id
from ..._model.transition import Applied
from ..._policy.order.lanes import changes_lanes
from ..._policy.order.rank import changes_ranks, head_start
from ..._policy.order.windows import opening
from ..records import check_expected, reader
from ..rules.actions import apply as apply_rule
from ..rules.audit import audited_put, audited_removal, audited_rewrite
from ..rules.questions import Rule
from .claim import relayout
from .claim.relayout import Displaced
from .queue_layout import Environment, read_settings
from .rows import columns_of
from .rule_player import transact, write_audit
from .script import Script, fetch, value
from .unit_of_work import UnitOfWork

_encoder = msgspec.json.Encoder()


def apply(
    env: Environment, action: Change, ids: Sequence[TaskId], states: Collection[State], limit: int
) -> Script[Applied]:
    """Apply an action to those of these tasks that are still in one of the states."""

    def rule(unit: UnitOfWork) -> Rule[Applied]:
        loaded = [task_id for task_id in ids if unit.get(task_id) is not None]
        return apply_rule(unit, action, loaded, states, limit)

    return transact(env, rule, ids, cancelled=ids if isinstance(action, Replay) else ())


def rewrite(clock: datetime | None, action: Rewrite) -> Script[Applied]:
    """Replace the documents of tasks that still have those that are expected, and audit it."""
    rows = [
        (one.id, one.after.payload, one.after.next, one.after.result, *astuple(one.before))
        for one in action.tasks
        if is_task_id(one.id)
    ]
    done = {row[0] for row in (yield from fetch("rewrite_tasks", *columns_of(rows, 7)))}
    if done:
        yield from write_audit(audited_rewrite(action, len(done), (yield from value("now", clock))))
    return Applied(ids=tuple(one.id for one in action.tasks if one.id in done))


# -- records -----------------------------------------------------------------------------------------


def put(
    clock: datetime | None,
    record: QueueSettings | StoredRecord,
    by: By | None,
    expected: Record | UnsetType | None,
) -> Script[Displaced]:
    """Store a record and audit it; return the queues whose tasks are no longer where they belong.

    Raises Conflict. The lock makes puts of the same record wait for each other, also while there is no row.
    """
    displaced = Displaced()
    yield from fetch("lock_record", KINDS.get(type(record), "queue"), record.name)
    before: Record | None = None
    if by is not None or expected is not UNSET:
        before = yield from _stored(type(record), record.name)
        check_expected(record, expected, before)
    if isinstance(record, QueueSettings):
        displaced = yield from _put_queue(clock, record)
    elif isinstance(record, Limit):
        displaced = Displaced((yield from relayout.put_limit(clock, record)))
    else:
        yield from fetch("put_record", KINDS[type(record)], record.name, _encoder.encode(record).decode())
    if by is not None:
        yield from write_audit([audited_put(before, record, by, (yield from value("now", clock)))])
    return displaced


def _stored(kind: type[Record], name: str) -> Script[Record | None]:
    if kind is QueueSettings:
        body = yield from value("queue_settings", name)
    else:
        body = yield from value("get_record", KINDS[kind], name)
    return None if body is None else reader(kind)(body)


def _put_queue(clock: datetime | None, settings: QueueSettings) -> Script[Displaced]:
    before = yield from value("queue_settings", settings.name)
    text = _encoder.encode(settings).decode()
    aged = None if settings.ordering.ageing is None else head_start(settings.ordering)
    columns = (settings.paused, settings.stripes, text, settings.is_laned, clock, aged, STRICT_MS)
    span: tuple[datetime | None, datetime | None] = None, None
    if settings.windows:
        found = opening(settings.windows, (yield from value("now", clock)))
        span = found.opens_at, found.closes_at
    yield from fetch("put_queue", settings.name, *columns, *span)
    yield from fetch("wake", [settings.name])
    return (yield from _displaced(settings.name, before, settings))


def _displaced(name: str, body: str | None, after: QueueSettings | None) -> Script[Displaced]:
    """Mark a queue whose tasks belong in other lanes, and return whether they do, or have other ranks."""
    before = None if body is None else read_settings(body)
    moves = changes_lanes(before, after)
    if moves:
        yield from fetch("mark_moving", [name])
    return Displaced([name] if moves else [], name if changes_ranks(before, after) else None)


def remove(
    clock: datetime | None, kind: type[Record], name: str, by: By | None
) -> Script[tuple[bool, Displaced]]:
    """Remove a record; return whether it existed, and the queues as `put` does. Audited if it existed."""
    displaced = Displaced()
    if kind is QueueSettings:
        removed, displaced = yield from _remove_queue(clock, name)
    elif kind is Limit:
        displaced = Displaced((yield from relayout.remove_limit(clock, name)))
        removed = bool(displaced.queues)
    elif kind is Session:
        removed = bool((yield from fetch("remove_session", name)))
    else:
        removed = bool((yield from fetch("remove_record", KINDS[kind], name)))
    if removed and by is not None:
        yield from write_audit([audited_removal(kind, name, by, (yield from value("now", clock)))])
    return removed, displaced


def _remove_queue(clock: datetime | None, name: str) -> Script[tuple[bool, Displaced]]:
    """Remove a queue's settings; return whether there were any. Wakes workers, as it may have been paused."""
    before = yield from value("queue_settings", name)
    removed = yield from value("remove_queue", name, clock, STRICT_MS)
    displaced = yield from _displaced(name, before, None)
    yield from fetch("wake", [name])
    return removed is not None, displaced
