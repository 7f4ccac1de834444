"""Entries of the audit log: what people did, without the secrets in it."""

import re
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from ..._ids import new_id
from ..._model.alert import Alert
from ..._model.filter import Action, By, Replay
from ..._model.key import ApiKey
from ..._model.queue import QueueSettings, Retention
from ..._model.record import KINDS, Audit, Record, Session, StoredRecord
from ..._model.schedule import Schedule
from ..._model.task import TaskId

MAX_DETAIL = 2_000
"""Characters of a record that an entry repeats."""

_NAMES: dict[object, str] = {**KINDS, QueueSettings: "queue", Session: "session"}
_OMITTED: dict[type[Record], tuple[str, ...]] = {ApiKey: ("hash",), Schedule: ("payload", "next")}
"""Fields that no entry repeats: everyone with read access sees the log, and payloads may hold secrets."""

_HOST = re.compile(r"\w+://(?:[^/?#]*@)?([^/?#]*)")


def audited(action: Action, task_id: TaskId, now: datetime) -> Audit:
    """Describe an action on a task."""
    edited = isinstance(action, Replay) and action.payload is not None
    return Audit(
        id=new_id(),
        at=now,
        who=action.by.who,
        why=action.by.why,
        action=str(action.__struct_config__.tag),
        task_id=task_id,
        detail="with an edited payload" if edited else "",
    )


def audited_put(record: QueueSettings | StoredRecord, by: By, now: datetime) -> Audit:
    """Describe a record as it is stored, without its secrets."""
    kind = type(record)
    shown: dict[str, Any] = _plain(record)
    for field in ("name", *_OMITTED.get(kind, ())):
        shown.pop(field, None)
    if isinstance(record, Alert) and record.webhook is not None:
        found = _HOST.match(record.webhook)  # The path of a webhook is often a secret.
        shown["webhook"] = "" if found is None else found[1]
    return _entry("put", f"{_NAMES[kind]} {record.name}", by, now, shown)


def audited_removal(kind: type[Record], name: str, by: By, now: datetime) -> Audit:
    """Describe the removal of a record."""
    return _entry("remove", f"{_NAMES[kind]} {name}", by, now)


def audited_prune(retention: Retention, by: By, now: datetime) -> Audit:
    """Describe the deletion of ended tasks that are past this retention."""
    return _entry("prune", "tasks", by, now, _plain(retention))


def _entry(action: str, subject: str, by: By, now: datetime, shown: dict[str, Any] | None = None) -> Audit:
    detail = "" if shown is None else msgspec.json.encode(shown).decode()
    if len(detail) > MAX_DETAIL:
        detail = f"{detail[: MAX_DETAIL - 1]}…"
    return Audit(id=new_id(), at=now, who=by.who, why=by.why, action=action, detail=detail, subject=subject)


def _plain(value: Any) -> Any:
    """A value of the model for JSON: durations in seconds, fields that are None by default left out."""
    match value:
        case timedelta():
            return value.total_seconds()
        case Struct():
            return {
                field.name: _plain(one)
                for field in fields(value)
                if (one := getattr(value, field.name)) is not None or field.default is not None
            }
        case _:
            return value
