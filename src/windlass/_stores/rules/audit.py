"""Entries of the audit log: what people did, without the secrets in it.

`detail` is JSON. Of a new record it is the record; of a change, the changed fields with their values before
and after; of an action on a task, its type, and for a discard also its payload and its failure.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from ..._ids import new_id
from ..._model.alert import Alert
from ..._model.filter import By, Discard, LoggedAction, OperatorAction, Replay, Reveal, Rewrite, Trigger
from ..._model.key import ApiKey, Login, login_id
from ..._model.options import DeclaredType
from ..._model.queue import QueueSettings, Retention
from ..._model.record import KINDS, Audit, Record, Session, ShardMap, StoredRecord
from ..._model.schedule import Schedule
from ..._model.task import Task
from ..._policy.secrets.fields import merged
from ..._policy.secrets.mask import mask_of

MAX_DETAIL = 2_000
"""Characters of a record that an entry repeats."""

MAX_PAYLOAD = 4_000
"""Characters of a discarded payload that an entry repeats."""

MAX_MESSAGE = 1_000

_NAMES: dict[object, str] = {**KINDS, QueueSettings: "queue", Session: "session"}
_HIDDEN: dict[type[Record], tuple[str, ...]] = {
    ApiKey: ("hash", "former"),
    Login: ("secret",),
    Schedule: ("payload", "next", "fingerprint"),
}
"""Fields whose values no entry repeats: everyone with read access sees the log."""

_DERIVED: dict[type[Record], tuple[str, ...]] = {
    Schedule: ("since", "declared"),
    ShardMap: ("id", "version", "former", "effective_at", "on"),
}
"""Fields that follow from others or from the time of the change."""

_HOST = re.compile(r"\w+://(?:[^/?#]*@)?([^/?#]*)")


def audited(
    action: OperatorAction, task: Task, now: datetime, declared: DeclaredType | None = None, number: int = 0
) -> Audit:
    """Describe an action on a task; of a discard also what is lost with it.

    `declared` is the task's type as it is published: its secret fields are masked besides the task's own.
    `number` is how many tasks came before it.
    """
    detail: dict[str, Any] = {"type": task.type}
    if isinstance(action, Replay) and action.payload is not None:
        detail["edited"] = True
    if isinstance(action, Replay) and action.run_at is not None:
        detail["run_at"] = action.due_at(number, now).isoformat()
    if isinstance(action, Discard):
        detail |= _lost(task, () if declared is None else declared.defaults.secret)
    return Audit(
        id=new_id(),
        at=now,
        who=action.by.who,
        why=action.by.why,
        action=str(action.__struct_config__.tag),
        task_id=task.id,
        detail=_json(detail),
        subject=f"schedule {action.schedule}" if isinstance(action, Trigger) else "",
    )


def audited_rewrite(action: Rewrite, number: int, now: datetime) -> list[Audit]:
    """Describe that the documents of this many tasks were rewritten; nothing if there is none."""
    return [_entry("rewrite", "tasks", action.by, now, {"tasks": number})] if number else []


def is_about_tasks(action: LoggedAction) -> bool:
    """Whether each task that matches is recorded; otherwise it is about a record."""
    return isinstance(action, Trigger) or not action.subject


def logged(action: LoggedAction, tasks: Iterable[Task], now: datetime) -> list[Audit]:
    """Describe what was done to each task or, if secrets of a record were shown, that."""
    if isinstance(action, Reveal) and action.subject:
        return [_entry("reveal", action.subject, action.by, now)]
    return [audited(action, task, now) for task in tasks]


def _lost(task: Task, secret: tuple[str, ...]) -> dict[str, Any]:
    mask = mask_of(task.payload, merged(task.secret, secret))
    payload: Any = msgspec.json.decode(mask.encoded(task.payload))
    if len(text := _json(payload)) > MAX_PAYLOAD:
        payload = _cut(text, MAX_PAYLOAD)
    lost: dict[str, Any] = {"queue": task.queue, "attempts": task.attempt, "payload": payload}
    if task.tenant:
        lost["tenant"] = task.tenant
    if task.error is not None:
        message = _cut(mask.text(task.error.message), MAX_MESSAGE)
        lost["error"] = {"type": mask.text(task.error.type), "message": message}
    return lost


def audited_put(before: Record | None, record: QueueSettings | StoredRecord, by: By, now: datetime) -> Audit:
    """Describe what was changed: paused, resumed, created, or which fields were set."""
    kind, subject = type(record), _subject(type(record), record.name)
    if before is None and isinstance(record, QueueSettings):
        before = QueueSettings(name=record.name)  # These settings apply where none are stored.
    if before is None:
        shown = {field: one for field, one in _shown(record).items() if field not in _HIDDEN.get(kind, ())}
        return _entry("create", subject, by, now, shown)
    if isinstance(record, ApiKey) and isinstance(before, ApiKey):
        if before.revoked_at is None and record.revoked_at is not None:
            return _entry("revoke", subject, by, now)
        if before.rotated_at != record.rotated_at:
            until = record.former_expires_at
            return _entry("rotate", subject, by, now, {"former_expires_at": until} if until else None)
    old, new = _shown(before), _shown(record)
    changes: dict[str, Any] = {
        field: [old.get(field), new.get(field)]
        for field in (*new, *(gone for gone in old if gone not in new))
        if old.get(field) != new.get(field)
    }
    if list(changes) == ["paused"]:
        return _entry("pause" if new["paused"] else "resume", subject, by, now)
    changes |= {field: None for field in changes if field in _HIDDEN.get(kind, ())}
    return _entry("set", subject, by, now, changes)


def audited_removal(kind: type[Record], name: str, by: By, now: datetime) -> Audit:
    """Describe the removal of a record."""
    return _entry("remove", _subject(kind, name), by, now)


def _subject(kind: type[Record], name: str) -> str:
    return f"{_NAMES[kind]} {login_id(name) if kind is Login else name}"


def audited_prune(retention: Retention, by: By, now: datetime) -> Audit:
    """Describe the deletion of ended tasks that are past this retention."""
    return _entry("prune", "tasks", by, now, _plain(retention))


def _entry(action: str, subject: str, by: By, now: datetime, shown: dict[str, Any] | None = None) -> Audit:
    detail = "" if shown is None else _cut(_json(shown), MAX_DETAIL)
    return Audit(id=new_id(), at=now, who=by.who, why=by.why, action=action, detail=detail, subject=subject)


def _shown(record: Record) -> dict[str, Any]:
    """The fields of a record that an entry may name; those of nested ordering beside the others."""
    shown: dict[str, Any] = _plain(record)
    shown |= shown.pop("ordering", {})
    for field in ("name", *_DERIVED.get(type(record), ())):
        shown.pop(field, None)
    if isinstance(record, Alert) and record.webhook is not None:
        found = _HOST.match(record.webhook)  # The path of a webhook is often a secret.
        shown["webhook"] = "" if found is None else found[1]
    return shown


def _plain(value: Any) -> Any:
    """A value of the model for JSON: durations in seconds, fields that are None by default left out."""
    match value:
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.decode()
        case Struct():
            return {
                field.name: _plain(one)
                for field in fields(value)
                if (one := getattr(value, field.name)) is not None or field.default is not None
            }
        case _:
            return value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
