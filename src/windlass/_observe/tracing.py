"""Spans by OpenTelemetry's conventions for messaging. The one module that knows OpenTelemetry. (O4)

It is never imported here first: a program that has not imported it cannot have set up an SDK, and then one
look is all that a task costs. The look is taken each time, as a program may set one up at any moment.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

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
_CONVERSATION = "messaging.message.conversation_id"
_COUNT = "messaging.batch.message_count"
_CLIENT = "messaging.client.id"
_ERROR = "error.type"
_TYPE = "windlass.task.type"
_TENANT = "windlass.task.tenant"
_PRIORITY = "windlass.task.priority"
_ATTEMPT = "windlass.task.attempt"
_MAX_ATTEMPTS = "windlass.task.max_attempts"
_QUEUE_WAIT = "windlass.task.queue_wait_ms"
_OUTCOME = "windlass.task.outcome"
_LOST = "lost"  # the lease became another's: what came of the attempt is dropped


# -- where this is -----------------------------------------------------------------------------------


def current() -> str | None:
    """The traceparent of the span that is current here."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return _written(found) if found.is_valid else None


def carried() -> str | None:
    """The trace that a task enqueued here goes on with: the current span's, or that of the task that runs."""
    found = current()
    if found is None and (task := running.get()) is not None:
        return task.trace
    return found


@contextmanager
def continued(trace: str | None) -> Iterator[None]:
    """Have the span that this names be current: for a child process, whose worker holds the span itself."""
    parent = _remote(trace) if _API in sys.modules else None
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


# -- sending -----------------------------------------------------------------------------------------


class Sending:
    """A batch on its way into the store: `batch` is as it shall be stored, with the traces it carries on."""

    __slots__ = ("_current", "batch")

    def __init__(self, batch: Sequence[NewTask], current: "_Current | None") -> None:
        self.batch = batch
        self._current = current

    def answered(self, answers: Sequence[Enqueued]) -> None:
        """Say which task stands: it need not be the one that was asked for."""
        if self._current is not None and len(answers) == 1:
            self._current.span.set_attribute(_MESSAGE, answers[0].id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._current is not None:
            self._current.end(error=type(error).__name__ if isinstance(error, Exception) else None)


def sending(batch: Sequence[NewTask]) -> Sending:
    """Begin a span about the tasks that go on with the current one; theirs becomes this span's context.

    One for the batch, however long. A task with a trace of the caller's choice keeps it.
    """
    tracer = _tracer()
    here = None if tracer is None else current()
    if tracer is None or here is None or all(task.trace != here for task in batch):
        return Sending(batch, None)
    from opentelemetry.trace import SpanKind

    types, queues = {task.type for task in batch}, {task.queue for task in batch}
    attributes: dict[str, str | int] = {_SYSTEM: "windlass", _OPERATION: "send", _OPERATION_TYPE: "send"}
    if len(types) == 1:
        attributes[_TYPE] = batch[0].type
    if len(queues) == 1:
        attributes[_DESTINATION] = batch[0].queue
    attributes |= {_MESSAGE: batch[0].id} if len(batch) == 1 else {_COUNT: len(batch)}
    name = f"send {batch[0].type}" if len(types) == 1 else "send"
    begun = _begun(tracer, name, kind=SpanKind.PRODUCER, attributes=attributes)
    if begun is None:
        return Sending(batch, None)
    told = [replace(task, trace=begun.trace) if task.trace == here else task for task in batch]
    return Sending(told, begun)


# -- processing --------------------------------------------------------------------------------------


class Attempt:
    """The span of an attempt; current until it is ended. What follows from it goes on with its `trace`."""

    __slots__ = ("_current", "trace")

    def __init__(self, current: "_Current") -> None:
        self._current = current
        self.trace = current.trace

    def end(self, outcome: Outcome | None) -> None:
        """It has come to this; None if nobody will know. No error's message: it may hold what is secret."""
        self._current.span.set_attribute(_OUTCOME, _LOST if outcome is None else name_of(outcome))
        match outcome:
            case Failed(error=error) | Crashed(error=error):
                self._current.end(error=error.type)
            case TimedOut():
                self._current.end(error=type(outcome).__name__)
            case _:
                self._current.end()


def attempted(task: Task, relation: str) -> Attempt | None:
    """Begin a span for an attempt; None if nobody traces. `relation` is one of RELATIONS."""
    tracer = _tracer()
    if tracer is None:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, set_span_in_context

    creation, around = _remote(task.trace), Context()
    if creation is not None and is_child(task, relation):
        around = set_span_in_context(NonRecordingSpan(creation), around)
    begun = _begun(
        tracer,
        f"process {task.type}",
        context=around,
        kind=SpanKind.CONSUMER,
        attributes=_about(task),
        links=[] if creation is None else [Link(creation)],
    )
    return None if begun is None else Attempt(begun)


def _about(task: Task) -> dict[str, str | int | float]:
    """What is known when an attempt begins: a sampler may decide by it."""
    attributes: dict[str, str | int | float] = {
        _SYSTEM: "windlass",
        _OPERATION: "process",
        _OPERATION_TYPE: "process",
        _DESTINATION: task.queue,
        _MESSAGE: task.id,
        _CONVERSATION: task.root,
        _TYPE: task.type,
        _PRIORITY: task.priority,
        _ATTEMPT: task.attempt,
        _MAX_ATTEMPTS: task.max_attempts,
    }
    if task.tenant:
        attributes[_TENANT] = task.tenant
    if task.worker is not None:
        attributes[_CLIENT] = task.worker
    if task.claimed_at is not None:
        waited = (task.claimed_at - task.run_at).total_seconds()
        attributes[_QUEUE_WAIT] = round(max(waited, 0.0) * 1000, 3)
    return attributes


# -- OpenTelemetry's own values ----------------------------------------------------------------------


class _Current:
    """A span that is the current one until it is ended, and its context as text."""

    __slots__ = ("_token", "span", "trace")

    def __init__(self, span: "Span") -> None:
        from opentelemetry import context
        from opentelemetry.trace import set_span_in_context

        self.span = span
        self.trace = _written(span.get_span_context())
        self._token: Token[Context] = context.attach(set_span_in_context(span))

    def end(self, *, error: str | None = None) -> None:
        """End it, as failed if there is an error of this type."""
        from opentelemetry import context
        from opentelemetry.trace import StatusCode

        context.detach(self._token)
        if error is not None:
            self.span.set_attribute(_ERROR, error)
            self.span.set_status(StatusCode.ERROR)
        try:
            self.span.end()
        except Exception as problem:  # noqa: BLE001 - see `_begun`
            _complain(problem)


def _begun(tracer: "Tracer", name: str, **how: Any) -> _Current | None:
    """Begin a span. A program's own sampler or processor may fail; no task shall, because of it."""
    try:
        return _Current(tracer.start_span(name, **how))
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is not about the task
        _complain(problem)
        return None


def _complain(problem: Exception) -> None:
    logger.warning("a span is not told: %s in the program's OpenTelemetry", type(problem).__name__)


def _tracer() -> "Tracer | None":
    """Our tracer, if the program has set up an SDK by now."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    return _tracer_of(trace.get_tracer_provider())


@lru_cache(maxsize=1)
def _tracer_of(provider: "TracerProvider") -> "Tracer | None":
    """The provider's tracer for us; None if all its spans would come to nothing."""
    from opentelemetry import trace

    if isinstance(provider, trace.ProxyTracerProvider):  # stands where none has been set
        return None
    tracer = provider.get_tracer("windlass", version("windlass"), schema_url=_SCHEMA)
    return None if isinstance(tracer, trace.NoOpTracer) else tracer


def _written(context: "SpanContext") -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _remote(text: str | None) -> "SpanContext | None":
    """The span that a task's trace names; None if there is none behind it."""
    from opentelemetry.trace import SpanContext, TraceFlags

    named = parse_trace(text)
    if named is None or named.is_synthetic:
        return None
    return SpanContext(
        int(named.trace_id, 16), int(named.span_id, 16), is_remote=True, trace_flags=TraceFlags(named.flags)
    )
