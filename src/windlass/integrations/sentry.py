"""Sentry: failed attempts as errors with their task, and check-ins of schedules. Needs windlass[sentry]."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from .._handler.around import CallNext
from .._handler.context import Context, running, taken_secrets
from .._model.schedule import Schedule
from .._model.task import Task
from .._policy.input.payload import decode
from .._policy.input.trace import parse_trace
from .._policy.schedule import schedule_of
from .._policy.secrets.fields import MASK
from .._policy.secrets.mask import redact
from .._policy.secrets.values import longest_first, scrub, secret_values
from ..app import App
from ..errors import InvalidOption, StoreError
from ..signals import Snooze

try:
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import use_isolation_scope
    from sentry_sdk.tracing_utils import has_tracing_enabled
    from sentry_sdk.utils import current_stacktrace, event_from_exception
except ModuleNotFoundError as missing:
    raise InvalidOption("Sentry needs an extra: pip install 'windlass[sentry]'") from missing

if TYPE_CHECKING:
    from sentry_sdk._types import Event, Hint, MonitorConfig

MECHANISM = {"type": "windlass", "handled": False}

_MAX_KEPT = 1_000  # scopes of failed attempts that have not been reported yet
_SCHEDULES_FOR = 60.0  # seconds until a changed schedule is noticed
_MAX_SLUG = 50
_UNITS: tuple[tuple[timedelta, Literal["day", "hour", "minute"]], ...] = (
    (timedelta(days=1), "day"),
    (timedelta(hours=1), "hour"),
    (timedelta(minutes=1), "minute"),
)


def attach(app: App, *, payload: bool = False, check_ins: bool = True) -> None:
    """Report the failed attempts of an app's tasks to Sentry, and check in its schedules.

        sentry_sdk.init(dsn="https://…")
        attach(app)

    Call it once, where the app is declared. Errors have id, type, queue, tenant and attempt of the task as
    tags, and the breadcrumbs of that attempt. Values of secret fields are masked in all that is sent while a
    task runs. `payload`: send the payload, too, masked. `check_ins`: each task of a schedule checks in to a
    monitor that has the schedule's name. See docs/logging.md.
    """
    ignore_logger("windlass.events")  # logs each failure, too
    sentry_sdk.get_global_scope().add_event_processor(_process)  # where programs enqueue, and in children
    reporter = _Reporter(app, payload=payload, check_ins=check_ins)
    app.around(reporter.around)
    app.on_error(reporter.report)


class _Reporter:
    """An isolation scope for each attempt; that of a failed one is kept until it is reported."""

    def __init__(self, app: App, *, payload: bool, check_ins: bool) -> None:
        self._payload = payload
        self._monitors = _Monitors(app) if check_ins else None
        self._kept: OrderedDict[tuple[str, int], sentry_sdk.Scope] = OrderedDict()

    async def around(self, ctx: Context[Any], call_next: CallNext) -> None:
        """Run an attempt in a scope of its own."""
        task = ctx.task
        config = None if self._monitors is None else await self._monitors.config(task)
        with self._scope_of(task) as scope:
            key = task.id, task.fence
            self._kept[key] = scope
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
            try:
                with _traced(task), _check_in(config):
                    await call_next()
            except Snooze:
                self._kept.pop(key, None)
                raise
            self._kept.pop(key, None)

    def report(self, task: Task, error: BaseException) -> None:
        """Send a failed attempt."""
        scope = self._kept.pop((task.id, task.fence), None)
        with self._scope_of(task) if scope is None else use_isolation_scope(scope):
            options = sentry_sdk.get_client().options
            event, hint = event_from_exception(error, client_options=options, mechanism=MECHANISM)
            sentry_sdk.capture_event(event, hint=hint)

    @contextmanager
    def _scope_of(self, task: Task) -> Iterator[sentry_sdk.Scope]:
        """Describe the task in an isolation scope, which collects the breadcrumbs of a block."""
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_transaction_name(task.type, source="task")
            labels = {"task_id": task.id, "task_type": task.type, "queue": task.queue, "tenant": task.tenant}
            scope.set_tags({name: value for name, value in labels.items() if value})
            scope.set_tag("attempt", task.attempt)
            details: dict[str, Any] = {**labels, "attempt": task.attempt, "max_attempts": task.max_attempts}
            if self._payload:
                details["payload"] = redact(_payload(task), task.secret)
            scope.set_context("task", {**details, "enqueued_by": task.enqueued_by})
            scope.add_event_processor(_masker(task))
            yield scope


@contextmanager
def _traced(task: Task) -> Iterator[None]:
    """Make a block a transaction, if the program traces, and part of the trace of the task's enqueuer."""
    parsed = None if task.trace is None else parse_trace(task.trace)
    headers = {} if parsed is None else {"sentry-trace": f"{parsed.trace_id}-{parsed.span_id}"}
    made = sentry_sdk.continue_trace(
        headers, op="queue.process", name=task.type, source="task", origin="auto.queue.windlass"
    )
    if not has_tracing_enabled(sentry_sdk.get_client().options):
        yield
        return
    with sentry_sdk.start_transaction(made) as transaction:
        transaction.set_data("messaging.system", "windlass")
        transaction.set_data("messaging.destination.name", task.queue)
        transaction.set_data("messaging.message.id", task.id)
        transaction.set_data("messaging.message.retry.count", task.attempt - 1)
        snooze = None
        try:
            yield
        except Snooze as one:  # no error
            snooze = one
        transaction.set_status("ok")
    if snooze is not None:
        raise snooze


def _masker(task: Task) -> "Callable[[Event, Hint], Event]":
    """Return a function that masks the secrets of a task in an event."""
    values = _secrets_of(task)

    def mask(event: "Event", _: "Hint") -> "Event":
        __tracebackhide__ = True  # in the stack that may be attached
        _attach_stack(event)
        _drop_own_variables(event)
        return _masked(event, values) if values else event

    return mask


def _attach_stack(event: Any) -> None:
    """Attach the stack if the program wants it. Later, as the SDK does it, it could not be masked."""
    __tracebackhide__ = True
    options = sentry_sdk.get_client().options
    others = {"exception", "stacktrace", "threads", "type"}  # a type: no error or message
    if options.get("attach_stacktrace") and not others & event.keys():
        wanted = {name: options[name] for name in ("include_local_variables", "max_value_length")}
        stack = current_stacktrace(**wanted)
        event["threads"] = {"values": [{"stacktrace": stack, "crashed": False, "current": True}]}


def _process(event: "Event", _: "Hint") -> "Event":
    """Drop own variables from any event, and mask those of a handler: in a child nothing else does."""
    __tracebackhide__ = True
    _attach_stack(event)
    _drop_own_variables(event)
    task = running.get()
    if task is None:
        return event
    if (event.get("tags") or {}).get("task_id") != task.id:  # a child, which has the breadcrumbs of others
        event.pop("breadcrumbs", None)
    values = _secrets_of(task)
    return _masked(event, values) if values else event


def _secrets_of(task: Task) -> tuple[str, ...]:
    return longest_first(secret_values(_payload(task), task.secret), taken_secrets.get())


def _drop_own_variables(event: Any) -> None:
    """Remove the local variables of windlass's own frames: they have the payload, as bytes."""
    traced = [one for name in ("exception", "threads") for one in (event.get(name) or {}).get("values") or ()]
    for one in traced:
        for frame in (one.get("stacktrace") or {}).get("frames") or ():
            if (frame.get("module") or "").startswith("windlass."):
                frame.pop("vars", None)


def _payload(task: Task) -> Any:
    try:
        return decode(task.payload)
    except (ValueError, RecursionError):  # not JSON, so its handler does not start
        return {}


def _masked(value: Any, values: tuple[str, ...]) -> Any:
    match value:
        case str():
            return scrub(value, values)
        case dict():
            return {_masked(key, values): _masked(item, values) for key, item in value.items()}
        case list() | tuple():
            return [_masked(item, values) for item in value]
        case int() | float() if not isinstance(value, bool) and str(value) in values:
            return MASK
        case _:
            return value


# -- check-ins -----------------------------------------------------------------------------------------


class _Monitors:
    """The monitors of an app's schedules."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._schedules: dict[str, Schedule] = {}
        self._read_at: float | None = None

    async def config(self, task: Task) -> "tuple[str, MonitorConfig] | None":
        """Return slug and configuration of the monitor of a task; None if it is of no schedule."""
        name = schedule_of(task.enqueued_by)
        if name is None:
            return None
        if self._read_at is None or monotonic() - self._read_at > _SCHEDULES_FOR:
            try:
                found = await self._app.operator.schedules.list()
            except StoreError:  # an outage: the schedules of the last time will do
                pass
            else:
                self._schedules = {one.schedule.name: one.schedule for one in found}
                self._read_at = monotonic()
        schedule = self._schedules.get(name)
        config = None if schedule is None else monitor_config(schedule)
        return None if config is None else (slug(name), config)


@contextmanager
def _check_in(monitor: "tuple[str, MonitorConfig] | None") -> Iterator[None]:
    """Check in at the start and the end of a block. A snooze is no error."""
    if monitor is None:
        yield
        return
    monitor_slug, config = monitor
    options: dict[str, Any] = {"monitor_slug": monitor_slug, "monitor_config": config}
    began, check_in_id = monotonic(), sentry_sdk.crons.capture_checkin(**options, status="in_progress")
    status = "ok"
    try:
        yield
    except Snooze:
        raise
    except BaseException:
        status = "error"
        raise
    finally:
        duration = monotonic() - began
        sentry_sdk.crons.capture_checkin(**options, check_in_id=check_in_id, status=status, duration=duration)


def monitor_config(schedule: Schedule) -> "MonitorConfig | None":
    """Return the configuration of a schedule's monitor; None if Sentry cannot express its rule."""
    if schedule.cron is not None:
        fields = len(schedule.cron.split())
        if fields != 5 and not schedule.cron.startswith("@"):
            return None
        return {"schedule": {"type": "crontab", "value": schedule.cron}, "timezone": schedule.zone}
    for length, unit in _UNITS:
        if schedule.every is not None and schedule.every >= length and not schedule.every % length:
            return {"schedule": {"type": "interval", "value": schedule.every // length, "unit": unit}}
    return None


def slug(name: str) -> str:
    """Return the slug of a monitor: lower-case letters, digits, hyphens and underscores, at most 50."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:_MAX_SLUG] or "schedule"
