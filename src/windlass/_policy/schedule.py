"""Validate schedules, and make tasks of their ticks."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from .._model.schedule import Missed, Overlap, Schedule, ScheduleTiming
from .._model.task import NewTask, TaskId, synthetic_trace
from ..errors import InvalidOption
from .calendar.cron import EXAMPLE, parse_cron
from .input import keys
from .input.chain import Step, decode_steps, encode_new_steps, encode_steps, with_fresh_ids
from .input.fingerprint import fingerprint
from .input.options import checked_name, checked_number, format_duration, parse_choice, parse_duration
from .input.quote import quoted

MIN_EVERY = timedelta(seconds=1)
MAX_AT_MOST = 1_000
MAX_JITTER = timedelta(days=1)
KEPT_FOR = timedelta(days=7)
"""How long the idempotency key of a tick or trigger lives, whatever happens to its task. If a leader dies
after firing a tick and before recording it, the next one fires it again: within minutes, or after a restore
from backup."""

_ORIGIN = "schedule "
_MAX_NAME = 200  # bytes: the idempotency keys of its ticks contain it

NAMED_RULES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Cron expressions that have a name."""


def new_schedule(
    name: str, step: Step, rule: timedelta | float | str, timing: ScheduleTiming, *, declared: bool = False
) -> Schedule:
    """Return a validated schedule of a step. Raises InvalidOption."""
    if step.result_into is not None:
        raise InvalidOption(f"{step.result_into}=RESULT needs a preceding step; a schedule's task has none")
    if step.delay is not None:
        raise InvalidOption("a schedule's task cannot have a delay: it is due at its tick; use jitter")
    zone = timing.get("zone", "UTC")
    if not isinstance(zone, str):
        raise InvalidOption(f"zone must be a name such as Europe/Berlin, got {quoted(zone)}")
    cron, every = _rule(rule, zone)
    jitter = parse_duration(timing.get("jitter", 0), "jitter")
    if jitter > MAX_JITTER:
        raise InvalidOption(f"jitter must be at most 1 day, got {jitter}")
    return Schedule(
        name=_name(name),
        type=step.type,
        payload=bytes(step.payload),
        cron=cron,
        zone=zone,
        every=every,
        missed=parse_choice(Missed, timing.get("missed", Missed.SKIP), "missed"),
        at_most=checked_number(timing.get("at_most", 100), "at_most", MAX_AT_MOST, "number of ticks"),
        overlap=parse_choice(Overlap, timing.get("overlap", Overlap.ALLOW), "overlap"),
        jitter=jitter,
        queue=step.queue,
        tenant=step.tenant,
        priority=step.priority,
        max_attempts=step.max_attempts,
        timeout=step.timeout,
        expires=step.expires,
        unique=step.unique,
        unique_for=step.unique_for,
        secret=step.secret,
        next=encode_new_steps(step.next),
        declared=declared,
    )


def same_rule(one: Schedule, other: Schedule) -> bool:
    """Whether both schedules have the same ticks."""
    return (one.cron, one.every) == (other.cron, other.every) and (one.cron is None or one.zone == other.zone)


def rule_text(schedule: Schedule) -> str:
    """Format a schedule's rule: its cron expression or, for example, "every 1h30m"."""
    if schedule.every is None:
        return schedule.cron or ""
    return f"every {format_duration(schedule.every.total_seconds())}"


def tick_task(schedule: Schedule, tick: datetime, make_id: Callable[[], TaskId]) -> NewTask:
    """Return the task of a tick. Its idempotency key names the tick, so firing it again adds no task."""
    named = former_tick_key(schedule, tick)
    draw = int.from_bytes(sha256(f"jitter:{named}".encode()).digest()[:6]) / (1 << 48)
    return _task(
        schedule,
        make_id,
        named,
        run_at=tick + draw * schedule.jitter,
        idempotency_key=tick_key(schedule, tick),
        idempotency_digest=keys.request_digest(schedule.type, schedule.payload),
        idempotency_for=KEPT_FOR,
    )


def tick_key(schedule: Schedule, tick: datetime) -> str:
    """Return the idempotency key of the task of a tick."""
    return keys.reserved_key(former_tick_key(schedule, tick))


def former_tick_key(schedule: Schedule, tick: datetime) -> str:
    """Return the key that earlier versions gave the task of a tick, and that callers could also give."""
    return f"schedule:{schedule.name}:{tick.astimezone(UTC).isoformat()}"


def origin(schedule: Schedule) -> str:
    """Return what a tick's task records as `enqueued_by`."""
    return f"{_ORIGIN}{schedule.name}"


def schedule_of(enqueued_by: str) -> str | None:
    """Return the name of the schedule whose tick a task is of; None if it is of none."""
    return enqueued_by.removeprefix(_ORIGIN) if enqueued_by.startswith(_ORIGIN) else None


def triggered_task(
    schedule: Schedule, make_id: Callable[[], TaskId], who: str | None = None, key: str | None = None
) -> NewTask:
    """Return a task outside the schedule's ticks, due at once; `who` triggered it.

    Triggered again with the same key, the schedule gets no other task, even if it has changed meanwhile.
    """
    named: dict[str, Any] = {}
    if key is not None:
        named["idempotency_key"] = keys.reserved_key(f"trigger:{schedule.name}", keys.checked_key(key))
        named["idempotency_for"] = KEPT_FOR
    task = _task(schedule, make_id, f"trigger:{schedule.name}:{make_id()}", **named)
    return task if who is None else replace(task, enqueued_by=f"{who}, {task.enqueued_by}")


def _task(schedule: Schedule, make_id: Callable[[], TaskId], named: str, **fields: Any) -> NewTask:
    task_id = make_id()
    return NewTask(
        id=task_id,
        type=schedule.type,
        payload=schedule.payload,
        root=task_id,
        queue=schedule.queue,
        tenant=schedule.tenant,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        timeout=schedule.timeout,
        expires_in=schedule.expires,
        fingerprint=schedule.fingerprint or schedule_fingerprint(schedule),
        unique_for=schedule.unique_for,
        next=encode_steps(tuple(with_fresh_ids(step, make_id) for step in decode_steps(schedule.next))),
        secret=schedule.secret,
        trace=synthetic_trace(int.from_bytes(sha256(named.encode()).digest()[:16])),
        enqueued_by=origin(schedule),
        **fields,
    )


def schedule_fingerprint(schedule: Schedule) -> str | None:
    """Return the fingerprint of a schedule's tasks, from its payload in plain text; None: not unique.

    A unique type refuses equal tasks of any origin, which includes those of other ticks.
    """
    if schedule.unique is False:
        return f"schedule:{schedule.name}" if schedule.overlap is Overlap.SKIP else None
    return fingerprint(schedule.unique, schedule.type, schedule.payload, schedule.priority, schedule.tenant)


def _name(name: str) -> str:
    if len(checked_name(name, "schedule").encode()) > _MAX_NAME:
        raise InvalidOption(f"the schedule name {quoted(name)} is longer than {_MAX_NAME} bytes")
    return name


def _named_rule(name: str) -> str:
    """Return the cron expression of a name such as @daily."""
    rule = NAMED_RULES.get(name.lower())
    if rule is None:
        raise InvalidOption(f"there is no rule {quoted(name)}; the names are {', '.join(NAMED_RULES)}")
    return rule


def _rule(rule: timedelta | float | str, zone: str) -> tuple[str | None, timedelta | None]:
    """Return a cron expression or an interval. Text of several words is a cron expression."""
    if isinstance(rule, str) and rule.strip().startswith("@"):
        rule = _named_rule(rule.strip())
    if isinstance(rule, str) and len(rule.split()) > 1:
        parse_cron(rule, zone)
        return " ".join(rule.split()), None
    try:
        every = parse_duration(rule, "interval")
    except InvalidOption:
        raise InvalidOption(
            f'a rule must be a cron expression or an interval such as "10m", got {quoted(rule)}; {EXAMPLE}'
        ) from None
    if every < MIN_EVERY:
        raise InvalidOption(f"the interval must be at least {MIN_EVERY.total_seconds():g} s, got {every}")
    if zone != "UTC":
        raise InvalidOption("zone is for cron expressions; intervals are counted from 1970 in UTC")
    return None, every
