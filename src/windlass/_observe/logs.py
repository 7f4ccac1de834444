"""Events as structured log records, and records as lines of JSON."""

import json
import logging
from datetime import UTC, datetime

from msgspec.structs import asdict

from .._handler.context import running
from .._policy.input.quoting import printable
from .._policy.input.trace import parse_trace
from .events import Event, EventName
from .tracing import current

logger = logging.getLogger("windlass.events")

_LEVELS = {
    EventName.ENQUEUED: logging.DEBUG,
    EventName.CLAIMED: logging.DEBUG,
    EventName.RETRIED: logging.WARNING,
    EventName.BURIED: logging.ERROR,
    EventName.RESCUED: logging.WARNING,
    EventName.LOST: logging.WARNING,
}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogSink:
    """Writes events to the logger `windlass.events`; every field is an attribute of the record."""

    def wants(self, name: EventName) -> bool:
        """Whether the logger would let it through."""
        return logger.isEnabledFor(_LEVELS.get(name, logging.INFO))

    def take(self, event: Event) -> None:
        """Log it."""
        fields = {
            _field(key): value
            for key, value in asdict(event).items()
            if value not in (None, "") and key not in {"name", "error"}
        }
        if event.error is not None:
            fields["error_type"], fields["error_message"] = event.error.type, event.error.message
        logger.log(
            _LEVELS.get(event.name, logging.INFO),
            "%s %s %s%s",
            event.type or "task",
            event.task_id,
            event.name,
            _tail(event),
            extra={"event": str(event.name), **fields},
        )


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever the record carries besides.

    Within a handler also the task's id and, where there is one, the trace and the span.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _whereabouts(record)
        line |= {
            key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=True)


def _whereabouts(record: logging.LogRecord) -> dict[str, str]:
    """In which span the record was made, and for which task. What the record says itself comes before it.

    It is made in the thread that logs, so the context here is that of whoever does.
    """
    task = running.get()
    named = parse_trace(current() or getattr(record, "trace", None) or (task and task.trace))
    found = {} if task is None else {"task_id": task.id}
    if named is not None:
        found["trace_id"] = named.trace_id
        if not named.is_synthetic:
            found["span_id"] = named.span_id
    return found


def _field(key: str) -> str:
    """`type` as the record calls it."""
    return "task_type" if key == "type" else key


def _tail(event: Event) -> str:
    parts = []
    if event.attempt:
        parts.append(f"attempt {event.attempt}")
    if event.duration is not None:
        parts.append(f"{event.duration * 1000:.1f} ms")
    if event.delay:
        parts.append(f"again in {event.delay:.1f} s")
    if event.error is not None:
        first_line = event.error.message.partition("\n")[0]
        parts.append(printable(f"{event.error.type}: {first_line}"))
    return f" ({', '.join(parts)})" if parts else ""
