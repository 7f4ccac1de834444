"""What operators do to tasks and records, with entries in the audit log."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from ..._model.filter import Action, By, Replay
from ..._model.queue import QueueSettings
from ..._model.record import KINDS, Record, StoredRecord
from ..._model.state import State
from ..._model.task import TaskId
from ..._policy.order.lanes import changes_lanes
from ..rules.actions import apply as apply_rule
from ..rules.audit import audited_put, audited_removal
from .queue_layout import Environment, read_settings
from .rule_player import run, write_audit
from .script import Script, ask, value
from .unit_of_work import UnitOfWork

T = TypeVar("T")
_encoder = msgspec.json.Encoder()


def apply(
    env: Environment, action: Action, ids: Sequence[TaskId], states: Collection[State], limit: int
) -> Script[list[TaskId]]:
    """Apply an action to those of these tasks that are still in one of the states."""
    unit = UnitOfWork((yield from value("now", env.clock)))
    yield from unit.load(ids)
    if isinstance(action, Replay):
        yield from unit.load_cancelled(ids)
    loaded = [task_id for task_id in ids if unit.get(task_id) is not None]
    done = yield from run(env, unit, apply_rule(unit, action, loaded, states, limit))
    yield from unit.flush()
    yield from unit.wake()
    return done


def put(
    clock: datetime | None, record: QueueSettings | StoredRecord, by: By | None, writing: Script[T]
) -> Script[T]:
    """Store a record by the script given, and audit it."""
    result = yield from writing
    if by is not None:
        yield from write_audit([audited_put(record, by, (yield from value("now", clock)))])
    return result


def remove(
    clock: datetime | None, kind: type[Record], name: str, by: By | None, removing: Script[T]
) -> Script[T]:
    """Remove a record by the script given, and audit it if the script returns something true."""
    result = yield from removing
    if result and by is not None:
        yield from write_audit([audited_removal(kind, name, by, (yield from value("now", clock)))])
    return result


# -- records -----------------------------------------------------------------------------------------


def put_record(record: StoredRecord) -> Script[None]:
    """Store a record in place of the one of the same kind and name."""
    yield from ask("put_record", KINDS[type(record)], record.name, _encoder.encode(record).decode())


def put_queue(clock: datetime | None, settings: QueueSettings) -> Script[bool]:
    """Store a queue's settings; return whether its tasks change lanes."""
    before = yield from value("queue_settings", settings.name)
    text = _encoder.encode(settings).decode()
    yield from ask(
        "put_queue", settings.name, settings.paused, settings.stripes, text, settings.is_laned, clock
    )
    yield from ask("wake", [settings.name])
    moved = changes_lanes(None if before is None else read_settings(before), settings)
    if moved:
        yield from ask("mark_moving", [settings.name])
    return moved


def remove_queue(clock: datetime | None, name: str) -> Script[bool]:
    """Remove a queue's settings; return whether there were any. Wakes workers, as it may have been paused."""
    before = yield from value("queue_settings", name)
    removed = yield from value("remove_queue", name, clock)
    if before is not None and changes_lanes(read_settings(before), None):
        yield from ask("mark_moving", [name])
    yield from ask("wake", [name])
    return removed is not None
