"""From what is said of a schedule to a checked one, and from its ticks to tasks. (T1, T2, T4)"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeVar

from msgspec.structs import replace

from .._model.schedule import Missed, Overlap, Schedule, ScheduleTiming
from .._model.task import NewTask, TaskId
from ..errors import InvalidOption
from .cron import EXAMPLE, parse_cron
from .input import keys
from .input.chain import Step, decode_steps, encode_steps, with_fresh_ids
from .input.options import checked_name, parse_duration
from .input.quoting import quoted
from .input.trace import synthetic_trace

E = TypeVar("E", bound=StrEnum)

MIN_EVERY = timedelta(seconds=1)
MAX_AT_MOST = 1_000
MAX_JITTER = timedelta(days=1)
KEPT_FOR = timedelta(days=7)
"""How long a tick's key stands, whatever becomes of its task. A leader that died after firing and before
saying so is followed by one that fires again: within minutes, or when the store comes back from a backup."""

_MAX_NAME = 200  # bytes: what its ticks are named by must fit an idempotency key


def new_schedule(
    name: str, step: Step, rule: timedelta | float | str, timing: ScheduleTiming, *, declared: bool = False
) -> Schedule:
    """A schedule of this task, checked whole."""
    if step.result_into is not None:
        raise InvalidOption(
            f"{step.result_into}=RESULT is for a step that follows; a tick has none before it"
        )
    if step.delay is not None:
        raise InvalidOption("a schedule's task is due at its tick; spread them with jitter, not with delay")
    zone = timing.get("zone", "UTC")
    if not isinstance(zone, str):
        raise InvalidOption(f"a zone is a name such as Europe/Berlin, not {quoted(zone)}")
    cron, every = _rule(rule, zone)
    jitter = parse_duration(timing.get("jitter", 0), "jitter")
    if jitter > MAX_JITTER:
        raise InvalidOption(f"a jitter is at most a day, not {jitter}")
    return Schedule(
        name=_name(name),
        type=step.type,
        payload=bytes(step.payload),
        cron=cron,
        zone=zone,
        every=every,
        missed=_chosen(Missed, timing.get("missed", Missed.SKIP), "missed"),
        at_most=_at_most(timing.get("at_most", 100)),
        overlap=_chosen(Overlap, timing.get("overlap", Overlap.ALLOW), "overlap"),
        jitter=jitter,
        queue=step.queue,
        tenant=step.tenant,
        priority=step.priority,
        boost=step.boost,
        max_attempts=step.max_attempts,
        timeout=step.timeout,
        unique=step.unique,
        secret=step.secret,
        next=encode_steps(step.next),
        declared=declared,
    )


def same_rule(one: Schedule, other: Schedule) -> bool:
    """Whether both name the same ticks."""
    return (one.cron, one.every) == (other.cron, other.every) and (one.cron is None or one.zone == other.zone)


def rule_text(schedule: Schedule) -> str:
    """The rule as people write it."""
    if schedule.every is None:
        return schedule.cron or ""
    seconds, parts = schedule.every.total_seconds(), ""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        whole, seconds = divmod(seconds, length)
        parts += f"{int(whole)}{unit}" if whole else ""
    return f"every {parts}{f'{seconds:g}s' if seconds else ''}"


def tick_task(schedule: Schedule, tick: datetime, make_id: Callable[[], TaskId]) -> NewTask:
    """The task of a tick. Its key names the tick: however often it is fired, it has one task."""
    named = f"schedule:{schedule.name}:{tick.astimezone(UTC).isoformat()}"
    draw = int.from_bytes(sha256(f"jitter:{named}".encode()).digest()[:6]) / (1 << 48)
    return _task(
        schedule,
        make_id,
        named,
        run_at=tick + draw * schedule.jitter,
        idempotency_key=named,
        idempotency_digest=keys.request_digest(schedule.type, schedule.payload),
        idempotency_for=KEPT_FOR,
    )


def triggered_task(schedule: Schedule, make_id: Callable[[], TaskId], who: str | None = None) -> NewTask:
    """A task out of turn, due at once; it says who wanted it."""
    task = _task(schedule, make_id, f"trigger:{schedule.name}:{make_id()}")
    return task if who is None else replace(task, enqueued_by=f"{who}, {task.enqueued_by}")


def _task(schedule: Schedule, make_id: Callable[[], TaskId], named: str, **when: Any) -> NewTask:
    task_id = make_id()
    return NewTask(
        id=task_id,
        type=schedule.type,
        payload=schedule.payload,
        root=task_id,
        queue=schedule.queue,
        tenant=schedule.tenant,
        priority=schedule.priority,
        boost=schedule.boost,
        max_attempts=schedule.max_attempts,
        timeout=schedule.timeout,
        fingerprint=_fingerprint(schedule),
        next=encode_steps(tuple(with_fresh_ids(step, make_id) for step in decode_steps(schedule.next))),
        secret=schedule.secret,
        trace=synthetic_trace(int.from_bytes(sha256(named.encode()).digest()[:16])),
        enqueued_by=f"schedule {schedule.name}",
        **when,
    )


def _fingerprint(schedule: Schedule) -> str | None:
    """A unique type keeps its own: it refuses equal tasks of any origin, and so those of other ticks too."""
    if schedule.unique:
        return keys.fingerprint(schedule.type, schedule.payload, schedule.priority, schedule.tenant)
    return f"schedule:{schedule.name}" if schedule.overlap is Overlap.SKIP else None


def _name(name: str) -> str:
    if len(checked_name(name, "schedule").encode()) > _MAX_NAME:
        raise InvalidOption(f"the schedule name {quoted(name)} has more than {_MAX_NAME} bytes; shorten it")
    return name


def _rule(rule: timedelta | float | str, zone: str) -> tuple[str | None, timedelta | None]:
    """A cron expression or an interval; what has several words is the former."""
    if isinstance(rule, str) and len(rule.split()) > 1:
        parse_cron(rule, zone)
        return " ".join(rule.split()), None
    try:
        every = parse_duration(rule, "interval")
    except InvalidOption:
        raise InvalidOption(
            f'a rule is a cron expression or an interval such as "10m", not {quoted(rule)}; {EXAMPLE}'
        ) from None
    if every < MIN_EVERY:
        raise InvalidOption(f"a schedule's interval is at least {MIN_EVERY.total_seconds():g} s, not {every}")
    if zone != "UTC":
        raise InvalidOption("an interval is counted from 1970 in UTC and has no zone; zones are for cron")
    return None, every


def _chosen(kind: type[E], value: str, what: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(f"{what} is one of {', '.join(kind)}, not {quoted(value)}") from None


def _at_most(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_AT_MOST:
        raise InvalidOption(
            f"at_most is a whole number of ticks from 1 to {MAX_AT_MOST}, not {quoted(value)}"
        )
    return value
