"""Tracing: OpenTelemetry spans for enqueueing and running tasks, by its conventions for messaging.

OpenTelemetry is imported only once the program has imported it: without that there can be no SDK, and
tracing costs one look into `sys.modules` per task. A program may set up an SDK at any time.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from msgspec.structs import replace

from .._handler.context import running
from .._model.outcome import Crashed, Failed, Outcome, TimedOut, name_of
from .._model.task import Enqueued, NewTask, Task
from .._policy.input.trace import is_child, parse_trace

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

logger = logging.getLogger("windlass.tracing")

_API = "opentelemetry.trace"
_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"

_SYSTEM = "messaging.system"
_OPERATION = "messaging.operation.name"
_OPERATION_TYPE = "messaging.operation.type"
_DESTINATION = "messaging.destination.name"
_MESSAGE = "messaging.message.id"
_TYPE = "windlass.task.type"


# -- the current trace --------------------------------------------------------------------------------


def current_traceparent() -> str | None:
    """Return the traceparent of the current span; None if there is none."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return _traceparent(found) if found.is_valid else None


def inherited_trace() -> str | None:
    """Return the trace for a task enqueued here: the current span's, else the running task's."""
    found = current_traceparent()
    if found is None and (task := running.get()) is not None:
        return task.trace
    return found


@contextmanager
def current_span(trace: str | None) -> Iterator[None]:
    """Make the span of a traceparent current: for a child process, whose worker owns the span itself."""
    parent = _span_context(trace) if _API in sys.modules else None
    if parent is None:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    token = context.attach(set_span_in_context(NonRecordingSpan(parent)))
    try:
        yield
    finally:
        context.detach(token)


# -- enqueueing --------------------------------------------------------------------------------------


class SendSpan(Struct, frozen=True):
    """The span of an enqueue, a context manager. `batch` is to be stored: it carries the span's context."""

    batch: Sequence[NewTask]
    _active: "ActiveSpan | None" = None

    def enqueued(self, results: Sequence[Enqueued]) -> None:
        """Record the task's id, which is that of an existing task where one has the same key."""
        if self._active is not None and len(results) == 1:
            self._active.span.set_attribute(_MESSAGE, results[0].id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active is not None:
            self._active.end(error=type(error).__name__ if isinstance(error, Exception) else None)


def send_span(batch: Sequence[NewTask]) -> SendSpan:
    """Start a span for a batch. Tasks carry its context then, unless the caller chose another trace."""
    tracer = _tracer()
    here = None if tracer is None else current_traceparent()
    if tracer is None or here is None or all(task.trace != here for task in batch):
        return SendSpan(batch)
    from opentelemetry.trace import SpanKind

    types, queues = {task.type for task in batch}, {task.queue for task in batch}
    attributes: dict[str, str | int] = {_SYSTEM: "windlass", _OPERATION: "send", _OPERATION_TYPE: "send"}
    if len(types) == 1:
        attributes[_TYPE] = batch[0].type
    if len(queues) == 1:
        attributes[_DESTINATION] = batch[0].queue
    if len(batch) == 1:
        attributes[_MESSAGE] = batch[0].id
    else:
        attributes["messaging.batch.message_count"] = len(batch)
    name = f"send {batch[0].type}" if len(types) == 1 else "send"
    span = _start_span(tracer, name, kind=SpanKind.PRODUCER, attributes=attributes)
    if span is None:
        return SendSpan(batch)
    traced = [replace(task, trace=span.trace) if task.trace == here else task for task in batch]
    return SendSpan(traced, span)


# -- running tasks -----------------------------------------------------------------------------------


def attempt_span(task: Task, relation: str) -> "ActiveSpan | None":
    """Start the span of an attempt; None without an SDK. `relation` is one of RELATIONS."""
    tracer = _tracer()
    if tracer is None:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, set_span_in_context

    creation, parent = _span_context(task.trace), Context()
    if creation is not None and is_child(task, relation):
        parent = set_span_in_context(NonRecordingSpan(creation), parent)
    return _start_span(
        tracer,
        f"process {task.type}",
        context=parent,
        kind=SpanKind.CONSUMER,
        attributes=_attempt_attributes(task),
        links=[] if creation is None else [Link(creation)],
    )


def end_attempt(span: "ActiveSpan", outcome: Outcome | None) -> None:
    """End the span; the outcome is None if the lease was lost. No error message is recorded: secrets."""
    span.span.set_attribute("windlass.task.outcome", "lost" if outcome is None else name_of(outcome))
    match outcome:
        case Failed(error=error) | Crashed(error=error):
            span.end(error=error.type)
        case TimedOut():
            span.end(error=type(outcome).__name__)
        case _:
            span.end()


def _attempt_attributes(task: Task) -> dict[str, str | int | float]:
    """Return the attributes known at the start, by which a sampler may decide."""
    attributes: dict[str, str | int | float] = {
        _SYSTEM: "windlass",
        _OPERATION: "process",
        _OPERATION_TYPE: "process",
        _DESTINATION: task.queue,
        _MESSAGE: task.id,
        "messaging.message.conversation_id": task.root,
        _TYPE: task.type,
        "windlass.task.priority": task.priority,
        "windlass.task.attempt": task.attempt,
        "windlass.task.max_attempts": task.max_attempts,
    }
    if task.tenant:
        attributes["windlass.task.tenant"] = task.tenant
    if task.worker is not None:
        attributes["messaging.client.id"] = task.worker
    if task.claimed_at is not None:
        waited = (task.claimed_at - task.run_at).total_seconds()
        attributes["windlass.task.queue_wait_ms"] = round(max(waited, 0.0) * 1000, 3)
    return attributes


# -- OpenTelemetry's types --------------------------------------------------------------------------


class ActiveSpan:
    """A span that is current until it is ended; tasks enqueued meanwhile inherit its traceparent, `trace`."""

    __slots__ = ("_token", "span", "trace")

    def __init__(self, span: "Span") -> None:
        from opentelemetry import context
        from opentelemetry.trace import set_span_in_context

        self.span = span
        self.trace = _traceparent(span.get_span_context())
        self._token: Token[Context] = context.attach(set_span_in_context(span))

    def end(self, error: str | None = None) -> None:
        """End the span, as failed if an error type is given."""
        from opentelemetry import context
        from opentelemetry.trace import StatusCode

        context.detach(self._token)
        if error is not None:
            self.span.set_attribute("error.type", error)
            self.span.set_status(StatusCode.ERROR)
        try:
            self.span.end()
        except Exception as problem:  # noqa: BLE001 - see `_start_span`
            _log_failure(problem)


def _start_span(tracer: "Tracer", name: str, **options: Any) -> ActiveSpan | None:
    """Start a span; None if that fails: the program's own sampler or processor must not fail a task."""
    try:
        return ActiveSpan(tracer.start_span(name, **options))
    except Exception as problem:  # noqa: BLE001 - the program's own code may raise anything
        _log_failure(problem)
        return None


def _log_failure(problem: Exception) -> None:
    logger.warning("dropped a span: the program's OpenTelemetry raised %s", type(problem).__name__)


def _tracer() -> "Tracer | None":
    """Return our tracer; None if the program has not set up an SDK."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    return _tracer_of(trace.get_tracer_provider())


@lru_cache(maxsize=1)
def _tracer_of(provider: "TracerProvider") -> "Tracer | None":
    """Return the provider's tracer for us; None if it records nothing."""
    from opentelemetry import trace

    if isinstance(provider, trace.ProxyTracerProvider):  # the default, when none has been set
        return None
    tracer = provider.get_tracer("windlass", version("windlass"), schema_url=_SCHEMA)
    return None if isinstance(tracer, trace.NoOpTracer) else tracer


def _traceparent(context: "SpanContext") -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _span_context(text: str | None) -> "SpanContext | None":
    """Return the span that a task's trace names; None if it names none."""
    from opentelemetry.trace import SpanContext, TraceFlags

    named = parse_trace(text)
    if named is None or named.is_synthetic:
        return None
    return SpanContext(
        int(named.trace_id, 16), int(named.span_id, 16), is_remote=True, trace_flags=TraceFlags(named.flags)
    )
