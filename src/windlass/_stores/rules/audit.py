"""What an operator may do to which tasks, and the lines in the audit log that say what people did."""

import re
from datetime import datetime
from typing import Any

import msgspec

from ..._ids import new_id
from ..._model.alert import Alert
from ..._model.filter import Action, By, Replay
from ..._model.key import ApiKey
from ..._model.queue import QueueSettings, Retention
from ..._model.record import Audit, Record, StoredRecord
from ..._model.schedule import Schedule
from ..._model.task import TaskId
from ..._store.json_codec import to_wire
from ..._store.messages import record_name

MAX_DETAIL = 2_000
"""Characters of a record that a line of the audit log repeats."""

_UNSAID: dict[type[Record], tuple[str, ...]] = {ApiKey: ("hash",), Schedule: ("payload", "next")}
"""What no line repeats: everybody who may look reads it, and payloads may hold secrets."""

_HOST = re.compile(r"\w+://(?:[^/?#]*@)?([^/?#]*)")


def audited(action: Action, task_id: TaskId, now: datetime) -> Audit:
    """Who did it to which task, and why."""
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
    """Who put a record, and what it says now; what must not be read by all is left out."""
    kind = type(record)
    said: dict[str, Any] = to_wire(record)
    for field in ("name", *_UNSAID.get(kind, ())):
        said.pop(field, None)
    if isinstance(record, Alert) and record.webhook is not None:
        found = _HOST.match(record.webhook)  # The path of many a webhook is a secret.
        said["webhook"] = "" if found is None else found[1]
    return _line("put", f"{record_name(kind)} {record.name}", by, now, said)


def audited_removal(kind: type[Record], name: str, by: By, now: datetime) -> Audit:
    """Who removed which record."""
    return _line("remove", f"{record_name(kind)} {name}", by, now)


def audited_prune(retention: Retention, by: By, now: datetime) -> Audit:
    """Who had ended tasks deleted, and how old they had to be."""
    return _line("prune", "tasks", by, now, to_wire(retention))


def _line(action: str, subject: str, by: By, now: datetime, said: dict[str, Any] | None = None) -> Audit:
    detail = "" if said is None else msgspec.json.encode(said).decode()
    if len(detail) > MAX_DETAIL:
        detail = f"{detail[: MAX_DETAIL - 1]}…"
    return Audit(id=new_id(), at=now, who=by.who, why=by.why, action=action, detail=detail, subject=subject)
