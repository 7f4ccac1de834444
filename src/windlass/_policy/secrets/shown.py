"""Tasks and records as they are shown: without their secrets, which their types tell, too."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TypeAlias, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from ..._model.alert import Alert
from ..._model.attempt import Attempt
from ..._model.limit import Usage
from ..._model.record import Declaration
from ..._model.schedule import Schedule
from ..._model.task import Error, NewTask, Progress, Task
from ...errors import InvalidOption
from ..alerts import webhook_origin
from ..input.chain import Step, encode_steps, readable_steps
from ..input.fingerprint import masked_fingerprint
from ..input.payload import canonical
from ..input.unreadable import readable_json, shown_error
from .fields import MASK, merged
from .mask import Mask, mask_of
from .values import secret_values

SecretOf: TypeAlias = Callable[[str], tuple[str, ...]]
"""Takes the name of a task type; returns its secret fields."""

MAX_PROGRESS = 500
"""Characters of a progress message that are stored."""

_HAS_SECRET = b'"secret":'  # in steps: fields with defaults are left out
_DOCUMENTS = ("payload", "next")  # what a schedule can have secrets in

Secretive = TypeVar("Secretive", Task, NewTask, Schedule)


def with_type_secrets(one: Secretive, secret_of: SecretOf) -> Secretive:
    """Add the secret fields of its type to a task or schedule, and to the steps that follow it."""
    secret = merged(one.secret, secret_of(one.type))
    following = one.next
    if following:
        steps = readable_steps(following)
        widened = tuple(_with_type_secrets(step, secret_of) for step in steps)
        following = following if widened == steps else encode_steps(widened)
    if secret == one.secret and following is one.next:
        return one
    return replace(one, secret=secret, next=following)


def _with_type_secrets(step: Step, secret_of: SecretOf) -> Step:
    secret = merged(step.secret, secret_of(step.type))
    return replace(step, secret=secret, next=tuple(_with_type_secrets(one, secret_of) for one in step.next))


def secrets_of(one: Task | NewTask | Schedule) -> list[tuple[str, tuple[str, ...]]]:
    """Return the types with secret fields of a task or schedule and of the steps that follow, with these."""
    found = [(one.type, one.secret)] if one.secret else []
    if one.next and _HAS_SECRET in one.next:
        steps = list(readable_steps(one.next))
        while steps:
            step = steps.pop()
            found += [(step.type, step.secret)] if step.secret else []
            steps += step.next
    return found


def task_mask(task: Task) -> Mask:
    """Return what to mask in a task: the secret values of its payload and of its result."""
    if task.result is None:
        return mask_of(task.payload, task.secret)
    return mask_of(task.payload, task.secret, secret_values(readable_json(task.result), task.secret))


def masked_task(task: Task) -> Task:
    """Return a task as it is shown: without the secrets of its payload, wherever they occur."""
    mask = task_mask(task)
    steps = tuple(_masked_step(step, mask) for step in readable_steps(task.next))
    return replace(
        task,
        payload=mask.encoded(task.payload),
        result=None if task.result is None else mask.result(task.result),
        error=masked_error(shown_error(task), mask),
        progress=None if task.progress is None else masked_progress(task.progress, mask),
        fingerprint=None if task.fingerprint is None else masked_fingerprint(task.fingerprint),
        next=encode_steps(steps),
    )


def masked_attempt(attempt: Attempt, mask: Mask) -> Attempt:
    """Return an attempt of a task with this mask as it is shown."""
    notes = None if attempt.notes is None else mask.encoded(attempt.notes)
    return replace(attempt, error=masked_error(attempt.error, mask), notes=notes)


def masked_schedule(schedule: Schedule) -> Schedule:
    """Return a schedule as it is shown: without the secrets of its payload and of the steps that follow."""
    mask = mask_of(schedule.payload, schedule.secret)
    steps = tuple(_masked_step(step, mask) for step in readable_steps(schedule.next))
    return replace(schedule, payload=mask.encoded(schedule.payload), next=encode_steps(steps))


def with_stored_secrets(changed: Schedule, stored: Schedule | None) -> Schedule:
    """Return a changed schedule with the stored documents where it has them as they are shown.

    Both have the secret fields of their types; `stored` is None for a new one. Raises InvalidOption for a
    mask in a document that is neither as shown nor as stored: it would be stored in place of the value.
    """
    kept = {}
    if stored is not None:
        kept = {name: getattr(stored, name) for name in _kept(changed, _masked_documents(stored))}
    for name in _DOCUMENTS:
        document = getattr(changed, name)
        is_stored = stored is not None and _same(document, getattr(stored, name))
        if _has_mask(document) and name not in kept and not is_stored:
            where = "payload" if name == "payload" else "steps that follow"
            raise InvalidOption(f"replace {MASK} in the {where} by the value that it stands for")
    return replace(changed, **kept)


def edited_payload(edited: bytes, stored: Task) -> bytes | None:
    """Return the new payload of a task; None if it is the stored one as it is shown, which then stays.

    The task has the secret fields of its type. Raises InvalidOption for a mask in another payload: it would
    be stored in place of the value.
    """
    if not _has_mask(edited) or _same(edited, stored.payload):
        return edited
    if _same(edited, task_mask(stored).encoded(stored.payload)):
        return None
    raise InvalidOption(
        f"replace {MASK} in the payload by the value that it stands for, or leave the payload out to keep it"
    )


def _has_mask(document: bytes | None) -> bool:
    if document is None or (MASK.encode() not in document and b"\\u" not in document):
        return False
    return MASK.encode() in _comparable(document)


def stays_masked(changed: Schedule, stored: Schedule) -> bool:
    """Whether all secrets that `with_stored_secrets` would take over stay masked after the change.

    They do in a schedule of the same type and tenant with at least the secret fields of the stored one.
    """
    masked = _masked_documents(stored)
    kept = _kept(changed, masked)
    if not kept:
        return True
    if (changed.type, changed.tenant) != (stored.type, stored.tenant) or {*stored.secret} - {*changed.secret}:
        return False
    if "payload" in kept:
        return True
    # In the steps that follow, values of the payload are masked, too: without them some could be shown.
    return _same(masked_schedule(replace(stored, payload=b"{}")).next, masked["next"])


def _masked_documents(schedule: Schedule) -> dict[str, bytes | None]:
    """Return the documents of a schedule in which something is masked when they are shown, as shown."""
    shown = masked_schedule(schedule)
    documents = {name: getattr(shown, name) for name in _DOCUMENTS}
    return {name: one for name, one in documents.items() if not _same(one, getattr(schedule, name))}


def _kept(changed: Schedule, masked: Mapping[str, bytes | None]) -> list[str]:
    return [name for name, shown in masked.items() if _same(getattr(changed, name), shown)]


def _same(one: bytes | None, other: bytes | None) -> bool:
    """Whether two documents are equal as JSON, however they are written."""
    return one == other or _comparable(one) == _comparable(other)


def _comparable(document: bytes | None) -> bytes:
    try:
        return canonical(document or b"null")
    except (ValueError, RecursionError):  # not JSON
        return document or b""


def masked_alert(alert: Alert) -> Alert:
    """Return an alert with only scheme and host of its webhook: path and query are often secret."""
    return alert if alert.webhook is None else replace(alert, webhook=webhook_origin(alert.webhook))


def masked_declaration(declaration: Declaration) -> Declaration:
    """Return a declaration without its body if that is a digest: who has it can test guesses of secrets."""
    return declaration if declaration.body.startswith("{") else replace(declaration, body="")


def masked_usage(usage: Usage, key: bytes) -> Usage:
    """Return the use of a limit that counts by a secret field, with a digest in place of the field's value.

    Equal values have equal digests under the same key, without which nobody can test a guess.
    """
    digest = blake2b(usage.value.encode(), key=key, digest_size=8).hexdigest()
    return replace(usage, name=f"{usage.limit} {digest}", value=f"{MASK} {digest}")


def masked_error(error: Error | None, mask: Mask) -> Error | None:
    """Return an error without secret values."""
    if error is None or not mask.values:
        return error
    traceback = None if error.traceback is None else mask.text(error.traceback)
    return Error(type=mask.text(error.type), message=mask.text(error.message), traceback=traceback)


def masked_progress(progress: Progress, mask: Mask) -> Progress:
    """Return progress without secret values in its message, which is cut only then, at `MAX_PROGRESS`."""
    return replace(progress, message=mask.text(progress.message)[:MAX_PROGRESS])


def _masked_step(step: Step, before: Mask) -> Step:
    """Return a step without its own secrets and those of the task before it."""
    mask = mask_of(bytes(step.payload), step.secret, before.values)
    payload = Raw(mask.encoded(bytes(step.payload)))
    return replace(step, payload=payload, next=tuple(_masked_step(one, mask) for one in step.next))
