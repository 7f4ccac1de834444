"""Entries of the audit log, and each as a sentence: "paused queue mail"."""

from typing import Any

import msgspec
from msgspec import Struct

from .._model.brief import Brief
from .._model.queue import Window
from .._model.record import Audit
from .._policy.order.window_options import format_window
from .fields import Id, Instant, build_document


class AuditDocument(Brief, Struct, kw_only=True):
    """Who did what, and why: to the task `task_id`, or to the record that `subject` names ("queue mail").

    `summary` says what was done in one sentence; `detail` is JSON with what it was done to.
    """

    id: Id
    at: Instant
    who: str
    why: str
    action: str
    task_id: Id | None
    subject: str
    detail: str
    summary: str


class AuditPage(Struct, kw_only=True):
    """One page of the audit log. `cursor` requests the next page; null on the last."""

    items: list[AuditDocument]
    cursor: str | None


def audit_document(entry: Audit) -> AuditDocument:
    """Build the document of an audit entry."""
    return build_document(AuditDocument, entry, summary=summary(entry))


_DONE = {
    "cancel": "cancelled",
    "replay": "replayed",
    "discard": "discarded",
    "pause": "paused",
    "resume": "resumed",
    "create": "created",
    "remove": "removed",
    "reveal": "revealed secrets of",
    "prune": "pruned",
    "rotate": "rotated",
    "revoke": "revoked",
    "trigger": "triggered",
    "put": "set",  # by earlier versions, which did not tell what was changed
}
_DURATIONS = frozenset(
    {"ageing", "hold", "window", "every", "jitter", "timeout", "completed", "cancelled", "dead"}
)
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def summary(entry: Audit) -> str:
    """Return what was done, in one sentence: "set ageing of queue mail: 5m → 10m"."""
    done = _DONE.get(entry.action, entry.action)
    detail = _detail(entry)
    if entry.task_id is not None:
        return f"{done} task {entry.task_id}{_of_task(entry.action, detail)}"
    if entry.action == "remove" and entry.subject.startswith("key "):
        done = "revoked"  # by earlier versions, which removed the key
    if entry.action == "set" and detail is not None:
        return _changed(entry.subject, detail)
    shown = ", ".join(_fields(detail or {}))
    return f"{done} {entry.subject}: {shown}" if shown else f"{done} {entry.subject}"


def _detail(entry: Audit) -> dict[str, Any] | None:
    """Return the detail as an object; None if it was cut, or is text, as earlier versions wrote it."""
    try:
        detail = msgspec.json.decode(entry.detail)
    except msgspec.DecodeError:
        return None
    return detail if isinstance(detail, dict) else None


def _of_task(action: str, detail: dict[str, Any] | None) -> str:
    if detail is None:
        return ""
    text = f" ({detail['type']})" if "type" in detail else ""
    if detail.get("edited"):
        text += " with an edited payload"
    if "run_at" in detail:
        text += f", due at {detail['run_at']}"
    if action == "discard":
        error = detail.get("error")
        if error:
            text += f": {error['type']}: {error['message']}"
    return text


def _changed(subject: str, changes: dict[str, Any]) -> str:
    if not changes:
        return f"set {subject}: no change"
    if len(changes) == 1:
        ((field, values),) = changes.items()
        return f"set {field} of {subject}" + ("" if values is None else f": {_arrow(field, values)}")
    parts = [
        field if values is None else f"{field} {_arrow(field, values)}" for field, values in changes.items()
    ]
    return f"set {subject}: {', '.join(parts)}"


def _arrow(field: str, values: list[Any]) -> str:
    before, after = values
    return f"{_text(field, before)} → {_text(field, after)}"


def _fields(record: dict[str, Any]) -> list[str]:
    return [
        f"{field} {_text(field, value)}"
        for field, value in record.items()
        if value is not False and value not in ("", {})
    ]


def _text(field: str, value: Any) -> str:
    match value:
        case None:
            return "for ever" if field in ("completed", "cancelled", "dead") else "none"
        case bool():
            return "yes" if value else "no"
        case int() | float() if field in _DURATIONS:
            return _duration(value)
        case float():
            return f"{value:g}"
        case dict():
            return "{" + ", ".join(_fields(value)) + "}"
        case list() if field == "windows":
            return ", ".join(format_window(msgspec.convert(one, Window)) for one in value) or "always"
        case list():
            return "+".join(map(str, value)) or "none"
        case _:
            return str(value) or "none"


def _duration(seconds: float) -> str:
    """A duration as the command line takes it, in the largest unit that fits: "10m"."""
    for unit, name in _UNITS:
        if seconds and seconds % unit == 0:
            return f"{int(seconds // unit)}{name}"
    return f"{seconds:g}s"
