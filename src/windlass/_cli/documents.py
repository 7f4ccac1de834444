"""Values as JSON documents: the vocabulary's names, instants in ISO 8601, durations in seconds."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from .._model.attempt import Attempt
from .._model.limit import Limit, Usage
from .._model.queue import QueueSettings
from .._model.record import Audit, Session
from .._model.task import Task
from .._policy.input.chain import Step, decode_steps
from .._policy.input.payload import decode
from .._policy.input.redact import redact
from .._store.protocol import Finding, Migration
from .time_text import iso, seconds

_INTERNAL = ("boost", "fingerprint", "fence", "session")


def plain(value: Any) -> Any:
    """A noun, or any part of one, as JSON values."""
    match value:
        case datetime():
            return iso(value)
        case timedelta():
            return seconds(value)
        case Struct():
            return {name: plain(item) for name, item in asdict(value).items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _:
            return value


def task_document(task: Task, *, reveal: bool = False) -> dict[str, Any]:
    """A task; secrets masked unless they are asked for."""
    opaque = {"payload", "result", "next"}
    known = {name: plain(value) for name, value in asdict(task).items() if name not in opaque}
    return {
        **{name: value for name, value in known.items() if name not in _INTERNAL},
        "fence": task.fence,
        "payload": shown_payload(task.payload, task.secret, reveal=reveal),
        "result": None if task.result is None else shown_payload(task.result, task.secret, reveal=reveal),
        "next": [step_document(step, reveal=reveal) for step in decode_steps(task.next)],
    }


def step_document(step: Step, *, reveal: bool = False) -> dict[str, Any]:
    """A task to be, with what follows it."""
    return {
        "id": step.id,
        "type": step.type,
        "queue": step.queue,
        "payload": shown_payload(bytes(step.payload), step.secret, reveal=reveal),
        "next": [step_document(below, reveal=reveal) for below in step.next],
    }


def shown_payload(data: bytes, secret: tuple[str, ...], *, reveal: bool = False) -> Any:
    """A payload or result as it may be shown."""
    value = decode(data)
    return value if reveal else redact(value, secret)


def attempt_document(attempt: Attempt) -> dict[str, Any]:
    """One try."""
    return dict(plain(attempt))


def session_document(session: Session, now: datetime) -> dict[str, Any]:
    """A worker's session."""
    worker = dict(plain(session.worker))
    return {
        "session": session.id,
        **worker,
        "alive": session.expires_at > now,
        "started_at": iso(session.started_at),
        "beat_at": iso(session.beat_at),
        "expires_at": iso(session.expires_at),
    }


def audit_document(entry: Audit) -> dict[str, Any]:
    """Who did what."""
    return dict(plain(entry))


def finding_document(finding: Finding) -> dict[str, Any]:
    """A line of a health report."""
    return {"severity": str(finding.severity), "subject": finding.subject, "message": finding.message}


def migration_document(migration: Migration) -> dict[str, Any]:
    """A step of the schema."""
    return dict(plain(migration))


def settings_document(settings: QueueSettings) -> dict[str, Any]:
    """How a queue is set."""
    return {
        "queue": settings.name,
        "paused": settings.paused,
        "ageing": seconds(settings.ordering.ageing),
        "retention": None if settings.retention is None else plain(settings.retention),
        "stripes": settings.stripes,
        "fairness": str(settings.fairness),
        "weights": dict(settings.weights),
        "shares": {str(level): share for level, share in settings.ordering.shares.items()},
    }


def limit_document(limit: Limit, usages: Sequence[Usage]) -> dict[str, Any]:
    """A limit, and what of it is in use."""
    return {
        **plain(limit),
        "burst": limit.capacity if limit.rate is not None else None,
        "in_use": [
            {"value": usage.value, "running": usage.running, "tokens": usage.tokens} for usage in usages
        ],
    }


def compact(value: Any) -> str:
    """JSON on one line, for a cell."""
    return msgspec.json.encode(value).decode()
