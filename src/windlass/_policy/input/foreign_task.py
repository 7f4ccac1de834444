"""Check tasks and steps that another program made, by the rules that `new_task` makes them by.

A store keeps what it is given. What comes over HTTP was perhaps not made by our client, so it is checked here
before a store sees it.
"""

from datetime import timedelta

from ..._model.task import MAX_ATTEMPTS, NewTask, TaskId, is_task_id
from ...errors import InvalidOption
from ..order.priority import parse_priority
from ..secrets.fields import MAX_SECRET_NAME
from ..secrets.patterns import PREFIX, compiled
from . import keys
from .chain import Step, check_number, check_size, decode_steps
from .fingerprint import MAX_FIELDS_BYTES, checked_unique, is_fingerprint
from .new_task import checked_expiry, checked_timeout
from .options import checked_name, checked_number, checked_text, parse_duration
from .payload import MAX_BYTES, parse_payload
from .quote import quoted
from .trace import checked_trace

MAX_STORED_BYTES = 3 * MAX_BYTES
"""Bytes of a payload as it is stored: with a predecessor's result in it, or with encrypted fields."""

MAX_GROUP = 100_000
"""Tasks that one task may wait for: all others of the largest batch."""

MAX_SECRET = 1_000
_MAX_PARAMETER = 128
_MAX_DIGEST = 64
_MAX_FINGERPRINT = _MAX_DIGEST + MAX_FIELDS_BYTES
_MAX_ENQUEUED_BY = 400


def check_new_task(task: NewTask, *, reserved: bool) -> None:
    """Raise InvalidOption or InvalidPayload for a task that no client makes.

    With `reserved`, it may have an idempotency key and a fingerprint that only windlass itself gives: that of
    a schedule's tick.
    """
    _check_common(task)
    check_id(task.root, "root")
    if task.run_at is not None and task.delay is not None:
        raise InvalidOption("give run_at or delay, not both")
    if task.expires_at is not None and task.expires_in is not None:
        raise InvalidOption("give expires_at or expires_in, not both")
    if task.after and task.before:  # tasks could wait for each other
        raise InvalidOption("give after or before, not both")
    if len(task.after) > MAX_GROUP:
        raise InvalidOption(f"a task can wait for at most {MAX_GROUP:,} others, got {len(task.after):,}")
    for one in task.after:  # one that is no id is simply not found
        checked_text(one, "a task id in after", 36)
    checked_expiry(task.expires_in)
    _check_key(task, reserved=reserved)
    if task.fingerprint is not None and not is_fingerprint(task.fingerprint):
        if not reserved or not task.fingerprint:
            raise InvalidOption(f"{quoted(task.fingerprint)} is not a fingerprint; leave it out")
        checked_text(task.fingerprint, "the fingerprint", _MAX_FINGERPRINT)
    if task.trace is not None:
        checked_trace(task.trace)
    checked_text(task.enqueued_by, "enqueued_by", _MAX_ENQUEUED_BY)
    check_steps(task.next)


def check_steps(data: bytes | None) -> None:
    """Check the steps that follow a task, as they are stored in it."""
    if not data:
        return
    check_size(data)
    steps = decode_steps(data)
    check_number(steps)
    while steps:
        for step in steps:
            check_step(step)
        steps = tuple(below for step in steps for below in step.next)


def check_step(step: Step) -> None:
    """Raise InvalidOption or InvalidPayload for a step that no client makes. What follows it is not read."""
    _check_common(step)
    checked_expiry(step.expires)
    checked_unique(step.unique)


def check_secret(secret: tuple[str, ...]) -> None:
    """Check the names of secret fields, and the patterns among them."""
    if len(secret) > MAX_SECRET:
        raise InvalidOption(f"a task has at most {MAX_SECRET:,} secret fields, got {len(secret):,}")
    for entry in secret:
        if not entry.startswith(PREFIX):
            checked_text(entry, "the name of a secret field", MAX_SECRET_NAME)
        elif compiled(entry) is None:
            raise InvalidOption(f"{quoted(entry)} is not a redaction pattern")


def check_id(task_id: TaskId, what: str = "id") -> None:
    """Raise InvalidOption unless this is a task's id."""
    if not is_task_id(task_id):
        raise InvalidOption(f"a task's {what} must be a lower-case UUID, not {quoted(task_id)}")


def check_period(value: timedelta | None, what: str) -> None:
    """Check a duration that is more than 0, or None."""
    if value is not None and not parse_duration(value, what):
        raise InvalidOption(f"{what} must be greater than 0; leave it out")


def _check_common(task: NewTask | Step) -> None:
    check_id(task.id)
    checked_name(task.type, "task type")
    checked_name(task.queue, "queue")
    if task.tenant:
        checked_name(task.tenant, "tenant")
    parse_priority(task.priority)
    checked_number(task.max_attempts, "max_attempts", MAX_ATTEMPTS)
    checked_timeout(task.timeout)
    check_period(task.unique_for, "unique_for")
    if task.delay is not None:
        parse_duration(task.delay, "delay")
    for one in task.before:
        check_id(one, "id in before")
    if task.result_into is not None:
        check_parameter(task.result_into)
    if task.secret:
        check_secret(task.secret)
    parse_payload(bytes(task.payload), max_bytes=MAX_STORED_BYTES)


def check_parameter(name: str) -> None:
    """Check the name of the parameter that receives a result."""
    if not name:
        raise InvalidOption("result_into must name a parameter; leave it out")
    checked_text(name, "result_into", _MAX_PARAMETER)


def _check_key(task: NewTask, *, reserved: bool) -> None:
    checked_text(task.idempotency_digest, "idempotency_digest", _MAX_DIGEST)
    if task.idempotency_for is not None:
        parse_duration(task.idempotency_for, "idempotency_for")
        if task.idempotency_key is None:
            raise InvalidOption("idempotency_for needs an idempotency_key")
    if task.idempotency_key is not None:
        (keys.check_stored_key if reserved else keys.checked_key)(task.idempotency_key)
