"""What is sent and answered about tasks, as JSON. The names are those of the vocabulary.

Instants are ISO 8601 and name their zone, durations are seconds. What is not known is null.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from .._model.attempt import Attempt
from .._model.filter import MAX_PAGE
from .._model.state import State
from .._model.task import MAX_ATTEMPTS, TASK_ID, Error, Task
from .._policy.input.chain import Step, decode_steps
from .._policy.input.keys import MAX_KEY_BYTES
from .._policy.input.options import MAX_DELAY
from .._policy.input.payload import decode
from .._policy.input.redact import redact
from .._policy.order.rank import MAX_PRIORITY

D = TypeVar("D", bound=Struct)

Name = Annotated[str, Meta(pattern=r"^\w[\w.:@/+-]*$", min_length=1, max_length=128)]
Id = Annotated[
    str,
    Meta(
        pattern=f"^{TASK_ID}$",
        max_length=36,  # Before a line's end, too, is an end to `$`.
        examples=["0199c3a2-7d10-7abc-8def-0123456789ab"],
    ),
]
Seconds = Annotated[float, Meta(ge=0, le=MAX_DELAY.total_seconds())]
Instant = Annotated[datetime, Meta(tz=True)]
Payload = Annotated[
    Raw,
    Meta(
        description="A JSON object; its keys are the handler's parameters. At most 1 MiB.",
        extra_json_schema={"type": "object"},
        examples=[{"user_id": 1}],
    ),
]
Value = Annotated[Raw, Meta(description="Any JSON. At most 1 MiB.")]
Priority: TypeAlias = (
    Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | Literal["high", "medium", "low"]
)
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_BYTES)]
Why = Annotated[str, Meta(max_length=500, description="For the audit log.")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Parameter = Annotated[str, Meta(min_length=1, max_length=128)]
Attempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]


class StepToBe(Struct, kw_only=True, forbid_unknown_fields=True):
    """A task that follows another when that has completed; `result_into` is a parameter for its result."""

    type: Name
    payload: Payload | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    max_attempts: Attempts | UnsetType = UNSET
    timeout: Seconds | UnsetType | None = UNSET
    result_into: Parameter | None = None
    next: "list[StepToBe]" = []


class TaskToBe(Struct, kw_only=True, forbid_unknown_fields=True):
    """A task to enqueue. What is left out is as its type declares, or the default.

    `run_at` and `delay` exclude each other. `unique`: refused while an equal task has not ended. With an
    `idempotency_key` a repeat answers with the task that stands.
    """

    type: Name
    payload: Payload | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    run_at: Instant | UnsetType = UNSET
    max_attempts: Attempts | UnsetType = UNSET
    timeout: Seconds | UnsetType | None = UNSET
    idempotency_key: Key | UnsetType = UNSET
    idempotency_for: Seconds | UnsetType = UNSET
    unique: bool | UnsetType = UNSET
    trace: Annotated[str, Meta(description="A W3C traceparent.")] | UnsetType = UNSET
    next: list[StepToBe] = []


class Enqueued(Struct, kw_only=True):
    """This task stands. `created` is false if it stood before; `following` are the ids of its chain."""

    id: Id
    created: bool
    following: list[Id] = []


class ErrorSaid(Struct, kw_only=True, forbid_unknown_fields=True):
    """What went wrong. Of what is too long, head and tail are kept."""

    type: Annotated[str, Meta(min_length=1)]
    message: str
    traceback: str | None = None


class ProgressSaid(Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a task has come: `fraction` is from 0 to 1. Of a long `message` the beginning is kept."""

    fraction: float
    message: str = ""


class StepDocument(Struct, kw_only=True):
    """A task to be, with what follows it."""

    id: Id
    type: str
    queue: str
    payload: Any
    next: "list[StepDocument]" = []


class TaskDocument(Struct, kw_only=True):
    """A task. Secret fields of payload and result are masked."""

    id: Id
    type: str
    queue: str
    tenant: str
    state: State
    priority: int
    attempt: int
    max_attempts: int
    run_at: Instant
    created_at: Instant
    claimed_at: Instant | None
    finished_at: Instant | None
    timeout: float | None
    worker: str | None
    duration: float | None
    cancel_requested: bool
    progress: ProgressSaid | None
    payload: Any
    result: Any
    error: ErrorSaid | None
    idempotency_key: str | None
    root: Id
    after: list[Id]
    result_into: str | None
    next: list[StepDocument]
    secret: list[str]
    trace: str | None
    enqueued_by: str


class AttemptDocument(Struct, kw_only=True):
    """One try of a task."""

    number: int
    worker: str | None
    claimed_at: Instant
    finished_at: Instant
    duration: float
    outcome: str
    error: ErrorSaid | None
    trace: str | None


class TaskPage(Struct, kw_only=True):
    """Some of the tasks that match, by age. `cursor` asks for the next page; null after the last."""

    items: list[TaskDocument]
    cursor: str | None


def like(kind: type[D], *sources: Struct, **said: Any) -> D:
    """A document of what is said, and of what the first source that has it calls by the same name.

    Durations are seconds. Model and documents share one vocabulary, and the tests of each resource hold them
    to it.
    """
    for name in kind.__struct_fields__:
        if name not in said:
            source = next(one for one in sources if name in one.__struct_fields__)
            said[name] = _plain(getattr(source, name))
    return kind(**said)


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case tuple():
            return list(value)
        case _:
            return value


def task_document(task: Task, may_see: Callable[[str, str], bool]) -> TaskDocument:
    """A task as it may be shown, with what follows it in queues and of tenants that may be seen."""
    return like(
        TaskDocument,
        task,
        progress=None if task.progress is None else like(ProgressSaid, task.progress),
        payload=_shown(task.payload, task.secret),
        result=None if task.result is None else _shown(task.result, task.secret),
        error=_error(task.error),
        next=_steps(decode_steps(task.next), may_see),
    )


def attempt_document(attempt: Attempt) -> AttemptDocument:
    """One try, as it may be shown."""
    return like(AttemptDocument, attempt, error=_error(attempt.error))


def _error(error: Error | None) -> ErrorSaid | None:
    return None if error is None else like(ErrorSaid, error)


def _steps(steps: Iterable[Step], may_see: Callable[[str, str], bool]) -> list[StepDocument]:
    return [
        like(
            StepDocument,
            step,
            payload=_shown(bytes(step.payload), step.secret),
            next=_steps(step.next, may_see),
        )
        for step in steps
        if may_see(step.queue, step.tenant)
    ]


def _shown(data: bytes, secret: tuple[str, ...]) -> Any:
    return redact(decode(data), secret)
