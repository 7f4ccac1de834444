"""Tasks, the steps that follow them, and their attempts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import schema_components
from msgspec.structs import replace

from .._client.client import Handle
from .._client.sync.client import SyncHandle
from .._client.tasks.export import EndedTask
from .._model.attempt import Attempt
from .._model.brief import Brief
from .._model.filter import Failure
from .._model.state import State
from .._model.task import Documented, Error, Progress, Task
from .._policy.input.chain import MaySee, Step, readable_steps, visible_steps
from .._policy.input.payload import decode
from .._policy.input.unreadable import is_object, shown_error
from .._policy.secrets.shown import masked_task
from .fields import Id, Instant, build_document, shown_json


class ErrorDocument(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """Why an attempt failed. Long texts are cut in the middle."""

    type: Annotated[str, Meta(min_length=1)]
    message: str
    traceback: str | None = None


class ProgressDocument(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """Progress of a running task: `fraction` is from 0 to 1. A long `message` is cut at its end."""

    fraction: float
    message: str = ""


class StepDocument(Brief, Struct, kw_only=True):
    """A task that is enqueued when its predecessor completes or, with `on_failure`, if it dies.

    `before`: the last task of its group, which waits for it, too. `next`: the steps that follow it.
    """

    id: Id
    on_failure: bool = False
    type: str
    queue: str
    payload: Any
    before: list[Id] = []
    next: "list[StepDocument]" = []


class TaskDocument(Brief, Struct, kw_only=True):
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
    expires_at: Instant | None
    timeout: float | None
    worker: str | None
    duration: float | None
    cancel_requested: bool
    cancelled_by: str | None
    cancel_reason: str | None
    progress: ProgressDocument | None
    payload: Any
    result: Any
    error: ErrorDocument | None
    failure: str | None
    idempotency_key: str | None
    root: Id
    after: list[Id]
    result_into: str | None
    next: list[StepDocument]
    secret: list[str]
    trace: str | None
    enqueued_by: str


class HandleDocument(Struct, kw_only=True):
    """A task that was enqueued. `created` is false if it existed before; `following`: those after it."""

    id: Id
    created: bool
    following: list[Id]


class TaskPage(Struct, kw_only=True):
    """A page of matching tasks, in order of creation. `cursor` requests the next page; null on the last."""

    items: list[TaskDocument]
    cursor: str | None


class FailureDocument(Struct, kw_only=True):
    """The dead letters of one type that failed alike. `error` is that of the newest one, `task_id`.

    `number` is an estimate unless `exact`. `id` is their `failure`; it is empty for those that died before
    failures were recorded.
    """

    id: str
    type: str
    error: ErrorDocument | None
    task_id: Id
    number: int
    exact: bool
    first_at: Instant
    last_at: Instant
    queues: list[str]


class FailureList(Struct, kw_only=True):
    """Failures, the most frequent first."""

    items: list[FailureDocument]


class ChainDocument(Struct, kw_only=True):
    """A chain or group: its first task, the number of its tasks in each state, and of steps to come.

    `type`, `queue`, `tenant` and `created_at` are those of its first task; null if its record is gone.
    """

    root: Id
    type: str | None = None
    queue: str | None = None
    tenant: str | None = None
    created_at: Instant | None = None
    tasks: dict[State, int]
    steps: int


class ChainPage(Struct, kw_only=True):
    """Chains and groups, newest first. `cursor` requests the next page; null on the last."""

    items: list[ChainDocument]
    cursor: str | None


class AttemptDocument(Brief, Struct, kw_only=True):
    """One settled attempt of a task."""

    number: int
    worker: str | None
    claimed_at: Instant
    finished_at: Instant
    duration: float
    outcome: str
    error: ErrorDocument | None
    trace: str | None
    notes: dict[str, Any] | None


class EndedTaskDocument(TaskDocument, kw_only=True):
    """A task that has ended, and its attempts, oldest first."""

    attempts: list[AttemptDocument]


class AttemptList(Struct, kw_only=True):
    """The settled attempts of a task, oldest first."""

    items: list[AttemptDocument]


def task_document(
    task: Task, may_see: MaySee = lambda _queue, _tenant: True, *, reveal: bool = False
) -> TaskDocument:
    """Build a task's document.

    Steps that the reader may not see are left out, with all that follows them; secrets are masked unless
    `reveal`.
    """
    task = replace(task, error=shown_error(task)) if reveal else masked_task(task)
    return build_document(
        TaskDocument,
        task,
        progress=None if task.progress is None else progress_document(task.progress),
        payload=shown_json(task.payload),
        result=None if task.result is None else shown_json(task.result),
        error=_error(task.error),
        next=_steps(visible_steps(readable_steps(task.next), task.tenant, may_see)),
        secret=[name for name in task.secret if name],
    )


def ended_document(
    ended: EndedTask, may_see: MaySee = lambda _queue, _tenant: True, *, reveal: bool = False
) -> EndedTaskDocument:
    """Build the document of an exported task; masked as `task_document` is."""
    task = task_document(ended.task, may_see, reveal=reveal)
    attempts = [attempt_document(attempt) for attempt in ended.attempts]
    return build_document(EndedTaskDocument, task, attempts=attempts)


def attempt_document(attempt: Attempt) -> AttemptDocument:
    """Build an attempt's document."""
    notes = None if attempt.notes is None or not is_object(attempt.notes) else decode(attempt.notes)
    return build_document(AttemptDocument, attempt, error=_error(attempt.error), notes=notes)


def failure_document(failure: Failure) -> FailureDocument:
    """Build a failure's document."""
    return build_document(FailureDocument, failure, error=_error(failure.error))


def progress_document(progress: Progress) -> ProgressDocument:
    """Build a progress document."""
    return build_document(ProgressDocument, progress)


def handle_document(handle: Handle[Any] | SyncHandle[Any]) -> HandleDocument:
    """Build a handle's document, without reading from the store."""
    return HandleDocument(id=handle.id, created=handle.created, following=[*handle.following])


_DOCUMENTS: dict[type[Documented], tuple[type[Struct], Callable[[Any], Struct]]] = {
    Attempt: (AttemptDocument, attempt_document),
    Failure: (FailureDocument, failure_document),
    Handle: (HandleDocument, handle_document),
    Progress: (ProgressDocument, progress_document),
    SyncHandle: (HandleDocument, handle_document),
    Task: (TaskDocument, task_document),
}


def document_of(value: Documented) -> Struct:
    """Build the document of a value of the model."""
    return _DOCUMENTS[type(value)][1](value)


def document_schema(kind: type[Documented]) -> dict[str, Any]:
    """Return the JSON schema of the documents of this class, without references."""
    _, schemas = schema_components([_DOCUMENTS[kind][0]], ref_template="{name}")
    made: dict[str, Any] = _inlined({"$ref": _DOCUMENTS[kind][0].__name__}, schemas)
    return {**made, "title": kind.__name__}


def _inlined(schema: Any, schemas: Mapping[str, Any], within: tuple[str, ...] = ()) -> Any:
    """Return a schema with others in place of references to them; anything where one contains itself."""
    match schema:
        case {"$ref": name}:
            return {} if name in within else _inlined(schemas[name], schemas, (*within, name))
        case dict():
            return {key: _inlined(one, schemas, within) for key, one in schema.items()}
        case list():
            return [_inlined(one, schemas, within) for one in schema]
        case _:
            return schema


def _error(error: Error | None) -> ErrorDocument | None:
    return None if error is None else build_document(ErrorDocument, error)


def _steps(steps: Iterable[Step]) -> list[StepDocument]:
    return [
        build_document(StepDocument, step, payload=shown_json(bytes(step.payload)), next=_steps(step.next))
        for step in steps
    ]
