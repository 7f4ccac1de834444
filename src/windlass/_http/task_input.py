"""From what a program sends to a task that a store can keep. Bad input is refused here: nothing is stored."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace
from starlette.requests import Request

from .._client.builder import TaskBuilder, checked_payload
from .._documents.fields import Id, Instant, Seconds
from .._model.options import Options
from .._model.task import NewTask
from .._policy.input import keys
from .._policy.input.chain import Step, check_levels
from .._policy.input.new_task import group, later_step
from .._policy.input.trace import trace_from_header
from ..app import App
from ..errors import InvalidOption, InvalidPayload
from .auth import Caller
from .input_fields import Attempts, Key, Name, Parameter, Payload, Priority
from .web.body import header
from .web.mount import path_within
from .web.problems import Problem

MAX_REQUEST_KEY = keys.MAX_KEY_BYTES - 15  # Room for the number of a task in its batch.

_KEY_HEADER = b"idempotency-key"
_OF_A_STEP = ("queue", "tenant", "priority", "delay", "max_attempts", "timeout")
_OF_A_FIRST = ("run_at", "idempotency_key", "idempotency_for", "unique", "trace")


class StepInput(Struct, kw_only=True, forbid_unknown_fields=True):
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
    next: "list[StepInput]" = []


class TaskInput(Struct, kw_only=True, forbid_unknown_fields=True):
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
    next: list[StepInput] = []


class Enqueued(Struct, kw_only=True):
    """This task stands. `created` is false if it stood before; `following` are the ids of its chain."""

    id: Id
    created: bool
    following: list[Id] = []


class Maker:
    """Makes tasks for one caller."""

    def __init__(self, app: App, caller: Caller, request: Request) -> None:
        self._types = app.types
        self._caller = caller
        trace = trace_from_header(header(request, b"traceparent")) or app.builder.origin().trace
        self._builder = TaskBuilder(app.builder.orderings, enqueued_by=caller.name, trace=trace)

    def task(self, asked: TaskInput) -> NewTask:
        """The task, with the chain that hangs on it."""
        check_levels(asked.next)
        options = self._options(asked, (*_OF_A_STEP, *_OF_A_FIRST))
        return self._within_queues(self._builder.first(self._step(asked, options, asked.next), options))

    def group(self, members: Sequence[NewTask], then: StepInput) -> tuple[NewTask, ...]:
        """The tasks and one that waits for all of them."""
        check_levels(then.next)
        return group(members, self._builder.first(self._following(then), {}))

    def _following(self, asked: StepInput) -> Step:
        options = self._options(asked, _OF_A_STEP)
        step = self._step(asked, options, asked.next, is_whole=asked.result_into is None)
        return later_step(step, options, asked.result_into)

    def _step(
        self, asked: TaskInput | StepInput, options: Options, then: list[StepInput], *, is_whole: bool = True
    ) -> Step:
        spec = self._types.get(asked.type)
        text = b"{}" if asked.payload is UNSET else bytes(asked.payload)
        payload = checked_payload(text, spec if is_whole else None)
        step = self._builder.step(asked.type, payload, options, spec)
        self._caller.needs_within(step.queue, step.tenant)
        return step.then(*[self._following(below) for below in then])

    def _within_queues(self, task: NewTask) -> NewTask:
        """Keys are a tenant's. If ours stands in a queue beyond the caller's, that is another request."""
        if self._caller.queues is None or task.idempotency_key is None:
            return task
        digest = keys.request_digest(f"{task.type} in {task.queue}", task.payload)
        return replace(task, idempotency_digest=digest)

    def _options(self, asked: TaskInput | StepInput, names: Sequence[str]) -> Options:
        """What was said. The tenant of a key that is bound to one goes without saying."""
        said: dict[str, Any] = {name: value for name in names if (value := getattr(asked, name)) is not UNSET}
        if self._caller.tenant is not None:
            said.setdefault("tenant", self._caller.tenant)
        return cast("Options", said)


class RequestKey:
    """The key of a request as a whole (Idempotency-Key): a repeat is answered as the first was."""

    def __init__(self, key: str, path: str, body: bytes) -> None:
        self._key = key
        self._digest = keys.request_digest(path, body)

    def on(self, batch: Sequence[NewTask]) -> list[NewTask]:
        """The tasks under this key: each is kept with it, in the step that keeps the task.

        The first has the key as it is, so that another request under it is refused however many it brings.
        """
        if any(task.idempotency_key is not None for task in batch):
            raise Problem(
                422,
                "invalid-option",
                "give Idempotency-Key or idempotency_key, one of them: both are the key",
            )
        return [
            replace(
                task,
                idempotency_key=f"{self._key}#{number}" if number else self._key,
                idempotency_digest=self._digest,
            )
            for number, task in enumerate(batch)
        ]


def request_key(request: Request, body: bytes) -> RequestKey | None:
    """The request's own key, if it has one: bare, or in quotes as the header's draft has it."""
    given = [value.decode("latin-1") for name, value in request.scope["headers"] if name == _KEY_HEADER]
    if not given:
        return None
    if len(given) > 1:
        raise Problem(422, "invalid-option", "Idempotency-Key is given twice; say it once")
    text = given[0].strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    key = keys.idempotency_key(text)
    if len(key.encode()) > MAX_REQUEST_KEY:
        raise Problem(422, "invalid-option", f"an Idempotency-Key has at most {MAX_REQUEST_KEY} bytes")
    return RequestKey(key, path_within(request.scope), body)  # It may be mounted anywhere.


def numbered(error: InvalidPayload | InvalidOption, number: int) -> InvalidPayload | InvalidOption:
    """The same refusal, saying which task of a batch it is about."""
    if isinstance(error, InvalidOption):
        return InvalidOption(f"task {number}: {error}")
    return InvalidPayload(f"task {number}: {error}", pointer=f"/tasks/{number}/payload{error.pointer}")
