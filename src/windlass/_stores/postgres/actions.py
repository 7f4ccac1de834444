"""What operators do to tasks and records, with entries in the audit log."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypeVar

from ..._model.filter import Action, By, Replay
from ..._model.queue import QueueSettings
from ..._model.record import Record, StoredRecord
from ..._model.state import State
from ..._model.task import TaskId
from ..rules.actions import apply as apply_rule
from ..rules.audit import audited_put, audited_removal
from .queue_layout import Environment
from .rule_player import run, write_audit
from .script import Script, value
from .unit_of_work import UnitOfWork

T = TypeVar("T")


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
