"""Tasks as API clients send them: request bodies, and enqueueing them within the key's bounds."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace
from starlette.requests import Request

from .._client.builder import TaskBuilder, checked_payload
from .._client.client import Handle
from .._client.tasks.predecessors import existing
from .._documents.fields import Id, Instant, Seconds
from .._encryption.encrypted_store import keyring_of
from .._model.brief import Brief
from .._model.filter import Filter, Page
from .._model.options import Options
from .._model.task import NewTask, Predecessor, Task, TaskId
from .._policy.input import keys
from .._policy.input.chain import Step, check_number
from .._policy.input.fingerprint import fingerprint_within
from .._policy.input.new_task import MAX_AFTER, NOW, group, later_step, predecessor_of
from .._policy.input.quote import quoted
from .._policy.input.trace import trace_from_header
from ..errors import DuplicateTask, IdempotencyConflict, InvalidOption, InvalidPayload
from .auth import Caller
from .input_fields import (
    Attempts,
    Expires,
    Key,
    Name,
    Parameter,
    Payload,
    Priority,
    RunAt,
    SecretFields,
    UniqueFields,
    given_fields,
)
from .operation import AnyRequest
from .task_query import following_ids, visible_tasks
from .web.body import header
from .web.problems import Problem
from .web.router import path_within

REQUEST_KEY_FOR = timedelta(days=7)
"""How long a request's key lives. The keys of a batch's tasks end together, whichever records are pruned."""

MAX_REQUEST_KEY = keys.MAX_KEY_BYTES - 15  # leaves room for the number of a task in its batch

_MAX_HIDDEN = 20  # tasks of a batch that equal ones beyond the bounds of the caller's key

_STEP_OPTIONS = (
    "queue", "tenant", "priority", "delay", "max_attempts", "timeout", "expires", "unique", "unique_for",
    "secret",
)  # fmt: skip
_TASK_OPTIONS = (*_STEP_OPTIONS, "run_at", "expires_at", "idempotency_key", "idempotency_for", "trace")


class StepInput(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """A task that is enqueued when its predecessor completes or, with `on_failure`, if it dies.

    `result_into` names the parameter that receives the predecessor's result, or what it died of.
    """

    type: Name
    on_failure: bool = False
    payload: Payload | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    max_attempts: Attempts | UnsetType = UNSET
    timeout: Seconds | UnsetType | None = UNSET
    expires: Expires | UnsetType | None = UNSET
    unique: UniqueFields | UnsetType = UNSET
    unique_for: Seconds | UnsetType | None = UNSET
    secret: SecretFields | UnsetType = UNSET
    result_into: Parameter | None = None
    next: "list[StepInput]" = []


class TaskInput(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """A task to enqueue. Omitted fields take the task type's defaults.

    Give `run_at` or `delay`, not both; `expires` or `expires_at`, not both. `after`: ids of tasks to wait
    for; `result_into` names the parameter that receives the list of their results. `unique`: refuse the task
    while an equal one has not ended, by its whole payload or by these fields; and until `unique_for` seconds
    after that one was enqueued.
    `idempotency_key`: a repeated request returns the existing task.
    """

    type: Name
    payload: Payload | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    run_at: RunAt | UnsetType = UNSET
    after: Annotated[list[Id], Meta(max_length=MAX_AFTER)] = []
    result_into: Parameter | None = None
    max_attempts: Attempts | UnsetType = UNSET
    timeout: Seconds | UnsetType | None = UNSET
    expires: Expires | UnsetType | None = UNSET
    expires_at: Instant | UnsetType = UNSET
    idempotency_key: Key | UnsetType = UNSET
    idempotency_for: Seconds | UnsetType = UNSET
    unique: UniqueFields | UnsetType = UNSET
    unique_for: Seconds | UnsetType | None = UNSET
    secret: SecretFields | UnsetType = UNSET
    trace: Annotated[str, Meta(description="A W3C traceparent.")] | UnsetType = UNSET
    next: list[StepInput] = []


class EnqueuedTask(Struct, kw_only=True):
    """An enqueued task. `created` is false if it existed before; `following` are the ids of its chain."""

    id: Id
    created: bool
    following: list[Id] = []


class InputBuilder:
    """Builds tasks from request bodies, within the bounds of the caller's key."""

    def __init__(self, request: AnyRequest) -> None:
        app = request.service.app
        self._request = request
        self._awaited: dict[TaskId, Predecessor] = {}
        self._types = app.client.types
        self._caller = request.caller
        trace = trace_from_header(header(request.http, b"traceparent")) or app.builder.origin().trace
        self._builder = TaskBuilder(enqueued_by=self._caller.name, trace=trace)

    async def look_up(self, bodies: Iterable[TaskInput]) -> None:
        """Look up the tasks that these wait for. To a bound key, those beyond its bounds do not exist."""
        ids = [*dict.fromkeys(task_id for body in bodies for task_id in body.after)]
        found = await visible_tasks(self._request, ids) if ids else {}
        self._awaited = {task.id: predecessor_of(task) for task in found.values()}

    def task(self, body: TaskInput) -> NewTask:
        """Build a task with the chain that follows it; what it waits for must have been looked up."""
        check_number(body.next)
        options = self._options(body, _TASK_OPTIONS)
        step = self._step(body, options, body.result_into)
        if body.after:
            options["after"] = [existing(self._awaited, task_id) for task_id in body.after]
        task = self._builder.first(replace(step, result_into=body.result_into), options)
        if self._caller.queues is not None and task.idempotency_key is not None:
            # Idempotency keys belong to a tenant. One used in a queue the caller cannot see must conflict.
            digest = keys.request_digest(f"{task.type} in {task.queue}", task.payload)
            return replace(task, idempotency_digest=digest)
        return task

    def group(self, members: Sequence[NewTask], then: StepInput) -> tuple[NewTask, ...]:
        """Build a group: the members, and last the task that waits for all of them."""
        check_number(then.next)
        if then.on_failure:
            raise InvalidOption(
                "on_failure is for steps in next; the last task of a group follows completions"
            )
        return group(members, self._later(then), self._builder.first)

    def _later(self, body: StepInput) -> Step:
        options = self._options(body, _STEP_OPTIONS)
        step = self._step(body, options, body.result_into)
        return replace(later_step(step, options, body.result_into), on_failure=body.on_failure)

    def _step(self, body: TaskInput | StepInput, options: Options, result_into: str | None = None) -> Step:
        text = b"{}" if body.payload is UNSET else bytes(body.payload)
        payload = checked_payload(text, self._types.declared.find(body.type), result_into)
        self._types.check_secret(body.type, options)
        defaults = self._types.defaults(body.type)
        step = self._builder.step(body.type, payload, options, defaults, result_into)
        self._caller.require_within(step.queue, step.tenant)
        return step.then(*[self._later(below) for below in body.next])

    def _options(self, body: TaskInput | StepInput, names: Sequence[str]) -> Options:
        """Collect the options given; the tenant defaults to the one that the key is bound to."""
        given = given_fields(body, names)
        if given.get("run_at", NOW) != NOW:
            given["run_at"] = _instant(given["run_at"])
        if "expires_at" in given:
            if "expires" in given:
                raise InvalidOption("expires and expires_at exclude each other; pass one of them")
            given["expires"] = given.pop("expires_at")
        if self._caller.tenant is not None:
            given.setdefault("tenant", self._caller.tenant)
        return cast("Options", given)


async def input_builder(request: AnyRequest, *bodies: TaskInput) -> InputBuilder:
    """Return a builder that knows the types that other apps have published, and what the tasks wait for."""
    await request.service.app.client.refresh_types()
    builder = InputBuilder(request)
    await builder.look_up(bodies)
    return builder


def _instant(text: str) -> datetime:
    """Parse `run_at`, which may also be "now"; msgspec allows no type besides an instant in one field."""
    try:
        return msgspec.convert(text, Instant)
    except msgspec.ValidationError:
        raise InvalidOption(
            f'run_at must be an instant with a time zone, such as 2026-11-15T08:00:00Z, or "now", '
            f"got {quoted(text)}"
        ) from None


def request_key(request: Request) -> str | None:
    """Return the request's Idempotency-Key, if any: bare, or in quotes as the header's draft has it.

    It identifies the whole request: a repeat gets the response of the first.
    """
    headers = request.scope["headers"]
    given = [value.decode("latin-1") for name, value in headers if name == b"idempotency-key"]
    if not given:
        return None
    if len(given) > 1:
        raise Problem("invalid-option", "the header Idempotency-Key is given more than once")
    text = given[0].strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    key = keys.checked_key(text)
    if len(key.encode()) > MAX_REQUEST_KEY:
        raise Problem("invalid-option", f"the Idempotency-Key is longer than {MAX_REQUEST_KEY} bytes")
    return key


def _with_key(request: AnyRequest, batch: Sequence[NewTask], key: str) -> list[NewTask]:
    """Give the tasks keys derived from the request's; the store keeps key and task in one step.

    The first task has the key itself, so that a different request with this key conflicts, however many
    tasks it has.
    """
    if any(task.idempotency_key is not None for task in batch):
        raise Problem("invalid-option", "give Idempotency-Key or idempotency_key, not both")
    # The path below the mount point: the digest is the same wherever the API is mounted.
    digest = keys.request_digest(path_within(request.http.scope), request.raw)
    if (keyring := keyring_of(request.service.store)) is not None:  # the body may have secrets
        digest = keyring.keyed(digest)
    return [
        replace(
            task,
            idempotency_key=f"{key}#{number}" if number else key,
            idempotency_digest=digest,
            idempotency_for=REQUEST_KEY_FOR,
        )
        for number, task in enumerate(batch)
    ]


def with_task_number(error: InvalidPayload | InvalidOption, number: int) -> InvalidPayload | InvalidOption:
    """Return the same error, naming the task of the batch."""
    if isinstance(error, InvalidOption):
        return InvalidOption(f"task {number}: {error}")
    return InvalidPayload(f"task {number}: {error}", pointer=f"/tasks/{number}/payload{error.pointer}")


async def enqueue_tasks(
    request: AnyRequest, batch: Sequence[NewTask], key: str | None = None
) -> tuple[list[EnqueuedTask], dict[str, str]]:
    """Enqueue all or none, within the caller's rates.

    Returns the tasks, and a header if the whole request repeats an earlier one. Conflicts with tasks outside
    the key's bounds do not reveal them.
    """
    request.service.rate_limiter.take_work(request.caller.key, batch)
    return await store_tasks(request, batch, key)


async def store_tasks(
    request: AnyRequest, batch: Sequence[NewTask], key: str | None = None
) -> tuple[list[EnqueuedTask], dict[str, str]]:
    """Do the same for tasks that the caller's rates have been charged for."""
    await request.service.tenant_queues.admit(request.caller, batch)
    if key is not None:
        batch = _with_key(request, batch, key)
    try:
        handles = await _enqueue(request, batch)
    except (DuplicateTask, IdempotencyConflict) as error:
        if await _may_know(request, error.standing):
            raise
        detail = "an equal task, or this idempotency key, exists outside this key's bounds"
        raise Problem(error.code, detail) from None
    except Problem as error:
        if request.caller.queues is None:
            raise
        # What a tenant uses tells of its other queues.
        raise Problem(error.code, "the quota of a tenant is used up", headers=error.headers) from None
    existing = [handle.id for handle in handles if not handle.created]
    seen = await visible_tasks(request, existing) if existing else {}
    is_repeat = key is not None and bool(existing)
    tasks = [
        EnqueuedTask(id=handle.id, created=True, following=list(handle.following))
        if handle.created
        else _existing_task(request.caller, handle.id, seen.get(handle.id), created=is_repeat)
        for handle in handles
    ]
    return tasks, {"Idempotency-Replayed": "true"} if is_repeat else {}


async def _enqueue(request: AnyRequest, batch: Sequence[NewTask]) -> Sequence[Handle[Any]]:
    """Enqueue all or none. To a bound key what is beyond its bounds does not exist, so no task equals that.

    A task that does is unique within its queue instead.
    """
    left = _MAX_HIDDEN
    while True:
        try:
            return await request.service.client.enqueue_tasks(batch)
        except DuplicateTask as error:
            left -= 1
            if not left or await _may_know(request, error.standing):
                raise
            hidden = await request.service.operator.find(Filter(ids=(error.standing,)), Page(limit=1))
            taken = {task.fingerprint for task in hidden.items}
            within = [
                replace(one, fingerprint=fingerprint_within(one.queue, one.fingerprint))
                if one.fingerprint is not None and one.fingerprint in taken
                else one
                for one in batch
            ]
            if within == [*batch]:  # not known any more which one it is
                raise
            batch = within


async def _may_know(request: AnyRequest, task_id: TaskId) -> bool:
    return not request.caller.is_bound or task_id in await visible_tasks(request, [task_id])


def _existing_task(caller: Caller, task_id: TaskId, task: Task | None, *, created: bool) -> EnqueuedTask:
    """Describe a task that existed before. Its key may outlive its record."""
    following = () if task is None else following_ids(caller, task)
    return EnqueuedTask(id=task_id, created=created, following=list(following))
