"""Logs: events and alerts as structured log records, and a formatter that writes records as JSON."""

import json
import logging
from datetime import UTC, datetime

from msgspec.structs import asdict

from .._handler.context import running
from .._policy.input.quote import counted, printable
from .._policy.input.trace import parse_trace
from ..alerts import AlertEvent, Turn
from .events import Event, EventName
from .log_secrets import STANDARD_FIELDS, mask_record
from .tracing import current_traceparent

logger = logging.getLogger("windlass.events")
alerts_logger = logging.getLogger("windlass.alerts")

_LEVELS = {
    EventName.ENQUEUED: logging.DEBUG,
    EventName.CLAIMED: logging.DEBUG,
    EventName.UNBLOCKED: logging.DEBUG,
    EventName.PROMOTED: logging.DEBUG,
    EventName.RETRIED: logging.WARNING,
    EventName.BURIED: logging.ERROR,
    EventName.RESCUED: logging.WARNING,
    EventName.LOST: logging.WARNING,
}
_ALERT_TURNS = {Turn.RAISED: "raised", Turn.REMINDED: "still raised", Turn.CLEARED: "cleared"}


class LogSink:
    """Writes events to the logger `windlass.events`; each field is an attribute of the record."""

    def wants(self, name: EventName) -> bool:
        return logger.isEnabledFor(_LEVELS.get(name, logging.INFO))

    def take(self, event: Event) -> None:
        fields = {
            key: value
            for key, value in asdict(event).items()
            if value not in (None, "") and value is not False and key not in {"name", "type", "error"}
        }
        if event.type:
            fields["task_type"] = event.type
        if event.error is not None:
            fields["error_type"], fields["error_message"] = event.error.type, event.error.message
        level = _LEVELS.get(event.name, logging.INFO)
        if not logger.isEnabledFor(level):
            return
        extra = {"event": str(event.name), **fields}
        record = logger.makeRecord(
            logger.name, level, __file__, 0, "%s", (_text(event),), None, "take", extra
        )
        if event.error is not None:
            # Already masked and cut. Every formatter of the standard library appends it, as it does exc_info.
            record.exc_text = (event.error.traceback or "").rstrip("\n") or None
        logger.handle(record)


def log_alert(event: AlertEvent) -> None:
    """Write an alert to the logger `windlass.alerts`; each field is an attribute of the record."""
    of_type = f" of type {event.type}" if event.type else ""
    in_queue = f" in queue {event.queue}" if event.queue else ""
    within = f" within {event.window.total_seconds():g} s" if event.window else ""
    alerts_logger.log(
        logging.INFO if event.turn is Turn.CLEARED else logging.WARNING,
        "alert %s is %s: %s%s%s%s (threshold %d)",
        event.alert,
        _ALERT_TURNS[event.turn],
        counted(event.number, "dead letter"),
        of_type,
        in_queue,
        within,
        event.count,
        extra={
            "event": f"alert_{event.turn}",
            "alert": event.alert,
            "number": event.number,
            "count": event.count,
            "window": None if event.window is None else event.window.total_seconds(),
            "task_type": event.type,
            "queue": event.queue,
            "raised_at": event.raised_at,
        },
    )


class TaskFilter(logging.Filter):
    """Gives every record `task_id` and `task_type`, those of the running task, for formats of one's own.

    Outside a handler both are "". Add it to a logging handler, as a filter on a logger sees only that
    logger's own records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        task = running.get()
        if not hasattr(record, "task_id"):
            record.task_id = task.id if task else ""
        if not hasattr(record, "task_type"):
            record.task_type = task.type if task else ""
        return True


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message and the record's extra fields.

    Inside a handler it masks the task's secrets, and adds its id and type and, if there is one, the trace and
    span ids.
    """

    def format(self, record: logging.LogRecord) -> str:
        mask_record(record)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= context_fields(record)
        line |= {
            key: value
            for key, value in vars(record).items()
            if key not in STANDARD_FIELDS and value is not None and not (isinstance(value, str) and not value)
        }
        if traceback := traceback_of(record, self):
            line["exception"] = traceback
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str, ensure_ascii=True)


def enable_loggers() -> None:
    """Enable the loggers of windlass: `dictConfig` disables all that exist before it, unless told not to."""
    for name, one in logging.root.manager.loggerDict.items():
        if isinstance(one, logging.Logger) and name.partition(".")[0] == "windlass":
            one.disabled = False


def traceback_of(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    """Return the traceback of a record, as text; "" if it has none."""
    if record.exc_text is None and record.exc_info:
        record.exc_text = formatter.formatException(record.exc_info)
    return record.exc_text or ""


def context_fields(record: logging.LogRecord) -> dict[str, str]:
    """Return the running task's id and type, its trace and its span. The record's own fields take precedence.

    Formatting happens in the thread that logs, so the context variables here are the caller's.
    """
    task = running.get()
    named = parse_trace(current_traceparent() or getattr(record, "trace", None) or (task and task.trace))
    found = {} if task is None else {"task_id": task.id, "task_type": task.type}
    if named is not None:
        found["trace_id"] = named.trace_id
        if not named.is_synthetic:
            found["span_id"] = named.span_id
    return found


def _text(event: Event) -> str:
    if event.number is not None:
        of_queue = f" of queue {event.queue}" if event.queue else ""
        what = f"{event.state} task" if event.state else "task"
        return f"{event.name} {counted(event.number, what)}{of_queue}"
    return f"{event.type or 'task'} {event.task_id} {event.name}{_details(event)}"


def _details(event: Event) -> str:
    parts = []
    if event.attempt:
        parts.append(f"attempt {event.attempt}")
    if event.duration is not None:
        parts.append(f"{event.duration * 1000:.1f} ms")
    if event.delay:
        parts.append(f"again in {event.delay:.1f} s")
    if event.error is not None:
        first_line = event.error.message.partition("\n")[0]
        parts.append(printable(f"{event.error.type}: {first_line}".removesuffix(": ")))
    return f" ({', '.join(parts)})" if parts else ""
