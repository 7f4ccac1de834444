"""Validate the options of an enqueue and make tasks and steps of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from ..._model.options import Defaults, Options, Unique
from ..._model.task import MAX_ATTEMPTS, NewTask, Predecessor, Task, TaskId, is_expiry
from ...errors import InvalidOption
from ..order.priority import parse_priority
from ..other_queues import check_known
from ..secrets.fields import MAX_SECRET, inherited, is_secret_name, merged
from . import keys
from .chain import Step, all_secret, awaited_by, decode_steps, encode_new_steps, failure_steps
from .fingerprint import check_fields, field_names, fingerprint, unique_options
from .options import checked_instant, checked_name, checked_names, checked_number, parse_duration
from .quote import quoted
from .trace import checked_trace

NOW = "now"
_NAMES = tuple(Options.__annotations__)
MAX_AFTER = 1_000
_FOR_FIRST = ("after", "run_at", "idempotency_key", "idempotency_for", "trace")
_AT_ENQUEUE = (*_FOR_FIRST, "expires", "unique", "unique_for")


class Origin(Struct, frozen=True, kw_only=True):
    """Where a request comes from, which is recorded on its tasks."""

    trace: str
    enqueued_by: str


def check_options(options: Mapping[str, object]) -> None:
    """Raise InvalidOption for an unknown option, and suggest the one that was probably meant."""
    check_known(options, _NAMES, f"the options are {', '.join(_NAMES)} and within")


def check_first_options(options: Mapping[str, object]) -> None:
    """Raise InvalidOption for options that must be set when a step is made, not when it is enqueued."""
    check_options(options)
    for given in options:
        if given not in _AT_ENQUEUE:
            raise InvalidOption(f"{given} must be set on the step: .using({given}=…).step(…)")


def new_task(step: Step, options: Options, origin: Origin) -> NewTask:
    """Return the first task of a request: a step with the options that only a first task can have.

    The tasks that it waits for must be given as `Predecessor`. It joins their root if they share one, and has
    the tenant that they share unless it has its own.
    """
    after: Sequence[Predecessor] = options.get("after", ())
    if step.result_into is not None and not after:
        raise InvalidOption(
            f"{step.result_into}=RESULT needs a predecessor: use it in a later step, or with after=[…]"
        )
    key = options.get("idempotency_key")
    if key is None and "idempotency_for" in options:
        raise InvalidOption("idempotency_for needs an idempotency_key")
    if "run_at" in options and step.delay is not None:
        raise InvalidOption("run_at and delay exclude each other; pass one of them")
    expires = options.get("expires", step.expires)
    payload = bytes(step.payload)
    unique, unique_for = unique_options(options, step.unique, step.unique_for)
    _check_unique_fields(options, unique, payload, step.result_into)
    tenant = step.tenant or shared(one.tenant for one in after)
    return NewTask(
        id=step.id,
        type=step.type,
        payload=payload,
        root=shared(one.root for one in after) or step.id,
        queue=step.queue,
        tenant=tenant,
        priority=step.priority,
        run_at=_run_at(options.get("run_at", NOW)),
        delay=step.delay,
        expires_at=checked_instant(expires, "expires") if isinstance(expires, datetime) else None,
        expires_in=None if isinstance(expires, datetime) else checked_expiry(expires),
        max_attempts=step.max_attempts,
        timeout=step.timeout,
        idempotency_key=None if key is None else keys.checked_key(key),
        idempotency_digest="" if key is None else keys.request_digest(step.type, payload),
        idempotency_for=_optional(options.get("idempotency_for"), "idempotency_for"),
        fingerprint=fingerprint(unique, step.type, payload, step.priority, tenant),
        unique_for=unique_for,
        next=encode_new_steps(step.next),
        after=tuple(one.id for one in after),
        result_into=step.result_into,
        secret=inherited(step.secret, (name for one in after for name in one.secret), step.result_into),
        trace=checked_trace(options["trace"]) if "trace" in options else origin.trace,
        enqueued_by=origin.enqueued_by,
    )


def new_step(
    type_name: str,
    payload: bytes,
    defaults: Defaults,
    options: Options,
    *,
    id: TaskId,
    result_into: str | None = None,
) -> Step:
    """Return a step from the defaults of its type and a caller's options.

    `result_into` names the field of the payload that the result of the task before it becomes.
    """
    check_options(options)
    if result_into is not None and not is_secret_name(result_into):  # it may have to be secret
        raise InvalidOption(f"result_into must be the name of a parameter, got {quoted(result_into)}")
    queue = checked_name(options.get("queue", defaults.queue), "queue")
    tenant = options.get("tenant", "")
    priority = parse_priority(options.get("priority", defaults.priority))
    attempts = options.get("max_attempts", defaults.max_attempts)
    unique, unique_for = unique_options(options, defaults.unique, defaults.unique_for)
    _check_unique_fields(options, unique, payload, result_into)
    expires = options.get("expires", defaults.expires)
    return Step(
        id=id,
        type=checked_name(type_name, "task type"),
        payload=Raw(payload),
        queue=queue,
        tenant=checked_name(tenant, "tenant") if tenant else "",
        priority=priority,
        delay=_optional(options.get("delay"), "delay"),
        max_attempts=checked_number(attempts, "max_attempts", MAX_ATTEMPTS),
        timeout=checked_timeout(options.get("timeout", defaults.timeout)),
        # An instant is for the first task of a request, and is taken from its options.
        expires=None if isinstance(expires, datetime) else checked_expiry(expires),
        secret=merged(defaults.secret, checked_secret(options["secret"]))
        if "secret" in options
        else defaults.secret,
        unique=unique,
        unique_for=unique_for,
        next=(
            *checked_steps(options.get("next"), "next"),
            *failure_steps(checked_steps(options.get("on_failure"), "on_failure")),
        ),
    )


def later_step(step: Step, options: Options, result_into: str | None) -> Step:
    """Return a step that follows another. Raises InvalidOption for options of a first task."""
    for given in _FOR_FIRST:
        if given in options:
            raise InvalidOption(
                f"{given} is only for the first task of a chain; later steps are enqueued when their "
                f"predecessor completes"
            )
    if isinstance(options.get("expires"), datetime):
        raise InvalidOption("expires must be a duration here: it counts from when the task is enqueued")
    return replace(step, result_into=result_into)


def predecessor_of(task: Task | NewTask) -> Predecessor:
    """Return what a task takes over that waits for this one."""
    return Predecessor(task.id, task.root, task.tenant, task.secret)


def group(
    first: Iterable[NewTask], then: Step, build: Callable[[Step, Options], NewTask]
) -> tuple[NewTask, ...]:
    """Return tasks and the one that waits for all of them, which `build` makes of `then`, under one root.

    Where a chain follows one of the tasks, the last waits for the end of it.
    """
    members = tuple(first)
    if not members:
        raise InvalidOption("a group needs at least one task before its last")
    root, trace = members[0].id, members[0].trace
    predecessors = [
        Predecessor(one.id, root, one.tenant, (*one.secret, *all_secret(decode_steps(one.next))))
        for one in members
    ]
    last = build(then, {"after": predecessors})
    return (
        *(replace(member, root=root, trace=trace, next=_awaited(member.next, last.id)) for member in members),
        replace(last, trace=trace),
    )


def _awaited(following: bytes | None, last: TaskId) -> bytes | None:
    """Return the steps that follow a member of a group, so that the last task waits for them too."""
    return encode_new_steps(awaited_by(decode_steps(following), last)) if following else None


def shared(values: Iterable[str]) -> str:
    """Return the one value that all of these are; "" if they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""


def checked_after(value: Any) -> Sequence[Any]:
    """Check that the option `after` is a list that is not too long; the client looks up what is in it."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidOption(f"after must be a list of handles or task ids, got {quoted(value)}")
    if len(value) > MAX_AFTER:
        raise InvalidOption(
            f"a task can wait for at most {MAX_AFTER:,} others, got {len(value):,}; use a group"
        )
    return value


def checked_secret(value: Any) -> tuple[str, ...]:
    """Check the option `secret`: names or dotted paths of payload fields."""
    found = checked_names(value, "secret")
    if len(found) > MAX_SECRET:
        raise InvalidOption(f"secret has {len(found):,} fields, at most {MAX_SECRET}")
    for name in found:
        if not is_secret_name(name):
            raise InvalidOption(
                f"secret must be names or dotted paths of payload fields, got {quoted(name)}; patterns are "
                f"for App(redact=…)"
            )
    return found


def checked_steps(value: Any, what: str) -> tuple[Step, ...]:
    """Return an option (None, a step or several) as a tuple of steps."""
    found = tuple(value) if isinstance(value, list | tuple) else () if value is None else (value,)
    for step in found:
        if not isinstance(step, Step):
            raise InvalidOption(f"{what} must be steps, made with a task type's step(), got {quoted(step)}")
    return found


def checked_timeout(value: timedelta | float | str | None) -> timedelta | None:
    """Check the time that an attempt may run; None is no timeout."""
    found = _optional(value, "timeout")
    if found is not None and not is_expiry(found):
        raise InvalidOption("timeout must be greater than 0; use None for no timeout")
    return found


def checked_expiry(value: timedelta | float | str | None) -> timedelta | None:
    """Check the time within which a task must start; None is any time."""
    found = _optional(value, "expires")
    if found is not None and not found:
        raise InvalidOption("expires must be greater than 0; use None for a task that does not expire")
    return found


def _run_at(value: datetime | str) -> datetime | None:
    """Check the option `run_at`. Stores check its bounds, by their clock."""
    return None if value == NOW else checked_instant(value, "run_at")


def _optional(value: timedelta | float | str | None, what: str) -> timedelta | None:
    return None if value is None else parse_duration(value, what)


def _check_unique_fields(options: Options, unique: Unique, payload: bytes, result_into: str | None) -> None:
    """Raise InvalidOption if the caller names a field that the payload does not have: a typing error."""
    if "unique" in options and isinstance(unique, tuple):
        check_fields(unique, {*field_names(payload), result_into or ""}, "the payload")
