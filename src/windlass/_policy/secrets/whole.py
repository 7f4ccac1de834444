"""Tasks and records masked whole: for whoever operates and sees no payload, and nothing that repeats one.

What is not named here as seen is not taken over, so a new field is hidden until somebody names it. Seen are
ids, names, numbers, instants and states; not seen are documents and free text.
"""

import re
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..._model.alert import AlertState
from ..._model.attempt import Attempt
from ..._model.record import Audit, Declaration
from ..._model.schedule import Schedule
from ..._model.task import Error, Progress, Task
from ..._model.transition import TaskTransition
from ..input.chain import Step, encode_steps, readable_steps
from ..input.unreadable import shown_error
from .fields import MASK

HIDDEN = msgspec.json.encode({"*": MASK})
"""In place of a payload, which is a JSON object."""

SEEN: dict[type[Struct], tuple[str, ...]] = {
    Task: (
        "id", "type", "root", "queue", "tenant", "priority", "boost", "state", "attempt", "max_attempts",
        "fence", "run_at", "created_at", "claimed_at", "finished_at", "timeout", "session", "worker",
        "duration", "cancel_requested", "after", "result_into", "trace", "enqueued_by", "unhandled_since",
        "expires_at", "cancelled_by",
    ),
    Attempt: (
        "task_id", "number", "fence", "worker", "claimed_at", "finished_at", "duration", "trace",
    ),
    Step: (
        "id", "on_failure", "type", "queue", "tenant", "priority", "delay", "max_attempts", "timeout",
        "expires", "result_into", "unique", "unique_for", "before",
    ),
    Schedule: (
        "name", "type", "cron", "zone", "every", "missed", "at_most", "overlap", "jitter", "queue", "tenant",
        "priority", "max_attempts", "timeout", "expires", "unique", "unique_for", "secret", "paused",
        "declared", "since",
    ),
    Audit: ("id", "at", "who", "action", "task_id", "subject"),
    TaskTransition: (
        "verb", "task_id", "type", "queue", "tenant", "attempt", "fence", "worker", "trace", "by",
    ),
}  # fmt: skip
"""The fields that are seen as they are, by class. Types and secret field names are of declarations."""

_SEEN_OF_TASK = ("type", "queue", "tenant", "attempts", "run_at", "edited")
"""What an audit entry about a task says that is seen."""

_PLAIN = (
    "queue", "limit", "quota", "alert", "key", "archive", "shards", "type", "session", "login", "tasks",
)  # fmt: skip
"""Kinds of records that hold nothing of a payload: audit entries about them are seen whole."""

_NAME = re.compile(r"(?:[A-Za-z_](?:[\w.]|<locals>){0,199})?", re.ASCII)
_SCHEDULE_HIDES = ("payload", "next", "fingerprint")

S = TypeVar("S", bound=Struct)


def whole_task(task: Task) -> Task:
    """Return a task masked whole; of its error the type is left, and of its progress the fraction."""
    error = whole_error(shown_error(task))
    return Task(
        **_seen(task),
        payload=HIDDEN,
        progress=None if task.progress is None else Progress(fraction=task.progress.fraction),
        result=None if task.result is None else msgspec.json.encode(MASK),
        error=error,
        idempotency_key=None if task.idempotency_key is None else MASK,
        next=encode_steps(tuple(map(_whole_step, readable_steps(task.next)))),
        cancel_reason=None if task.cancel_reason is None else MASK,
        failure=group_of(task.type, error) if task.failure else task.failure,
    )


def whole_attempt(attempt: Attempt) -> Attempt:
    """Return an attempt masked whole."""
    outcome, error = _shown_name(attempt.outcome), whole_error(attempt.error)
    return Attempt(**_seen(attempt), outcome=outcome, error=error)


def whole_transition(transition: TaskTransition) -> TaskTransition:
    """Return a transition masked whole."""
    return TaskTransition(**_seen(transition), error=whole_error(transition.error))


def whole_schedule(schedule: Schedule) -> Schedule:
    """Return a schedule masked whole."""
    steps = encode_steps(tuple(map(_whole_step, readable_steps(schedule.next))))
    return Schedule(**_seen(schedule), payload=HIDDEN, next=steps)


def with_stored_documents(changed: Schedule, stored: Schedule) -> Schedule | None:
    """Return a changed schedule with the stored documents in place of the masks; None if it has others.

    Also None if type or tenant differ: the payload would become one of another owner.
    """
    masked = whole_schedule(stored)
    own = ("type", "tenant", "payload", "next", "unique", "unique_for")
    if any(getattr(changed, name) != getattr(masked, name) for name in own):
        return None
    if {*stored.secret} - {*changed.secret}:
        return None
    kept = {name: getattr(stored, name) for name in ("payload", "next", "fingerprint")}
    return replace(changed, **kept)


def whole_audit(entry: Audit) -> Audit:
    """Return an audit entry masked whole: reasons and details are left where they cannot repeat a payload."""
    if entry.task_id is not None:
        detail = _detail(entry)
        seen = {name: value for name, value in detail.items() if name in _SEEN_OF_TASK}
        if isinstance(error := detail.get("error"), dict):
            seen["error"] = {"type": _shown_name(str(error.get("type"))), "message": MASK}
        return Audit(**_seen(entry), why=MASK if entry.why else "", detail=_json(seen) if seen else "")
    kind = entry.subject.partition(" ")[0]
    if kind in _PLAIN:
        return entry
    if kind == "schedule":
        detail = {name: one for name, one in _detail(entry).items() if name not in _SCHEDULE_HIDES}
        return replace(entry, detail=_json(detail) if detail else "")
    # The id of an endpoint is a digest of its URL, with which a guess could be tested.
    return Audit(**{**_seen(entry), "subject": kind}, why=MASK if entry.why else "")


def whole_declaration(declaration: Declaration) -> Declaration:
    """Return a declaration without its body: that of a schedule is a digest of the payload."""
    return replace(declaration, body="")


def whole_alarm(state: AlertState) -> AlertState:
    """Return the state of an alert without texts in place of the types of errors."""
    return replace(
        state,
        unsent=tuple(
            replace(
                notice,
                letters=tuple(replace(one, error=_shown_name(one.error)) for one in notice.letters),
            )
            for notice in state.unsent
        ),
    )


def whole_error(error: Error | None) -> Error | None:
    """Return an error with its type only."""
    return None if error is None else Error(type=_shown_name(error.type), message=MASK)


def group_of(task_type: str, error: Error | None) -> str:
    """Return the id of all failures of a task type with the same type of error.

    Unlike the id of a failure it is computed from nothing but what is seen: nobody can test a guess with it.
    """
    parts = "\0".join((task_type, "" if error is None else error.type))
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=8, person=b"group").hexdigest()


def _whole_step(step: Step) -> Step:
    return Step(**_seen(step), payload=Raw(HIDDEN), next=tuple(map(_whole_step, step.next)))


def _seen(value: Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in SEEN[type(value)]}


def _shown_name(text: str) -> str:
    """Return a name, such as that of an exception; what is not spelled like one is masked."""
    return text if _NAME.fullmatch(text) else MASK


def _detail(entry: Audit) -> dict[str, Any]:
    try:
        detail = msgspec.json.decode(entry.detail)
    except (msgspec.DecodeError, RecursionError):  # cut, or text of an earlier version
        return {}
    return detail if isinstance(detail, dict) else {}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
