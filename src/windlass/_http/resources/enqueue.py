"""Enqueue tasks: one, a batch, or a stream of JSON lines."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import ClientDisconnect

from ..._model.key import Scope
from ..._model.task import NewTask
from ..._timers import wait_for_event
from ...errors import InvalidOption, InvalidPayload, NotFound, Refused, UsageError, WindlassError
from ..bounds.rate_limit import limits_work
from ..operation import AnyRequest, ApiRequest, ApiResponse, NoQuery, Operations, decode_line
from ..task_input import (
    EnqueuedTask,
    InputBuilder,
    StepInput,
    TaskInput,
    enqueue_tasks,
    input_builder,
    request_key,
    store_tasks,
    with_task_number,
)
from ..web.body import has_disconnected, require_media_type
from ..web.ndjson import NDJSON, SILENCE_SECONDS, DuplexResponse, read_lines
from ..web.off_loop import off_loop
from ..web.problems import Problem, ProblemDocument, problem_document, problem_for

enqueues = Operations("tasks")

MAX_BATCH = 10_000
_BYTES_PER_TURN = 256 * 1024  # of payloads to check before other requests get a turn
_LEAST_PAUSE = 0.1  # seconds in which a stream beyond its rate gathers tasks for one enqueue
_TASK_BYTES = 512  # overhead per task, counted as bytes
_encode_lines = msgspec.json.Encoder().encode_lines


class BatchInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """Tasks to enqueue, all or none. `then` waits until all, with their chains, have completed."""

    tasks: Annotated[list[TaskInput], Meta(min_length=1, max_length=MAX_BATCH)]
    then: StepInput | UnsetType = UNSET


class EnqueuedBatch(Struct, kw_only=True):
    """The enqueued tasks in the order given; `then` is the last."""

    tasks: list[EnqueuedTask]


class LineResult(Struct, kw_only=True):
    """The result of one line: the task, or the problem, which ends the response."""

    line: int
    id: str | None = None
    created: bool | None = None
    problem: ProblemDocument | None = None


@enqueues(
    "POST",
    "/tasks",
    Scope.ENQUEUE,
    bound=True,
    status=201,
    statuses=(200, 404, 409, 507),
    request_headers=("Idempotency-Key",),
    response_headers=("Location", "Idempotency-Replayed"),
)
async def enqueue(request: ApiRequest[NoQuery, TaskInput]) -> ApiResponse[EnqueuedTask]:
    """Enqueue a task.

    The response is sent once the task is durable. With the header `Idempotency-Key` a repeat gets the same
    response, and the same key with a different body is refused (422). With `idempotency_key` in the body a
    repeat returns the existing task (200). A `unique` task that equals one that has not ended is refused
    (409), and one that waits `after` a task that does not exist (404).
    """
    builder = await input_builder(request, request.body)
    built = await request.off_loop(builder.task, request.body)
    (task,), replayed = await enqueue_tasks(request, [built], request_key(request.http))
    headers = request.location(task.id) | replayed
    return ApiResponse(value=task, status=201 if task.created else 200, headers=headers)


@enqueues(
    "POST",
    "/tasks/batch",
    Scope.ENQUEUE,
    bound=True,
    batch=True,
    status=201,
    statuses=(404, 409, 507),
    request_headers=("Idempotency-Key",),
    response_headers=("Idempotency-Replayed",),
)
async def enqueue_batch(request: ApiRequest[NoQuery, BatchInput]) -> ApiResponse[EnqueuedBatch]:
    """Enqueue up to 10,000 tasks, all or none.

    `Idempotency-Key` applies to the whole batch. Tasks that exist already by their own `idempotency_key` are
    returned with `created: false`; `then` cannot wait for those (404).
    """
    builder = await input_builder(request, *request.body.tasks)
    batch: list[NewTask] = []
    for part in _parts(request.body.tasks):
        batch += await request.off_loop(_build_part, builder, part, len(batch))
    if not isinstance(request.body.then, UnsetType):
        batch = [*builder.group(batch, request.body.then)]
    tasks, replayed = await enqueue_tasks(request, batch, request_key(request.http))
    return ApiResponse(value=EnqueuedBatch(tasks=tasks), headers=replayed)


def _parts(tasks: list[TaskInput]) -> Iterator[list[TaskInput]]:
    """Divide a batch into parts that are quickly built, between which other requests get a turn."""
    part: list[TaskInput] = []
    size = 0
    for task in tasks:
        part.append(task)
        size += _TASK_BYTES + (0 if task.payload is UNSET else len(bytes(task.payload)))
        if size > _BYTES_PER_TURN:
            yield part
            part, size = [], 0
    if part:
        yield part


def _build_part(builder: InputBuilder, tasks: list[TaskInput], start: int) -> list[NewTask]:
    """Build the tasks of a batch from number `start` on; errors name the number."""
    built: list[NewTask] = []
    for number, one in enumerate(tasks, start):
        try:
            built.append(builder.task(one))
        except (InvalidPayload, InvalidOption) as error:
            raise with_task_number(error, number) from None
    return built


@enqueues(
    "POST",
    "/tasks/stream",
    Scope.ENQUEUE,
    bound=True,
    body=TaskInput,
    body_type=NDJSON,
    response=LineResult,
    response_type=NDJSON,
)
async def enqueue_stream(request: AnyRequest) -> DuplexResponse:
    """Enqueue any number of tasks, one JSON object per line (NDJSON).

    Each line is answered with a line once its task is durable: read the response while sending. The first
    line that cannot be enqueued is answered with its `problem` and ends the response; the tasks before it
    stay enqueued. A stream that is faster than the rates of its key is slowed down; a line that had to wait
    longer than 30 seconds is refused (429). Give each line an `idempotency_key` to be able to send the whole
    stream again; the header `Idempotency-Key` is refused. Blank lines are ignored.
    """
    if "idempotency-key" in request.http.headers:
        raise Problem(
            "invalid-option",
            "the header Idempotency-Key does not apply to streams; give each line an idempotency_key",
        )
    require_media_type(request.http, NDJSON, "JSON lines")
    request.begin_stream()
    return DuplexResponse(_line_results(request))


async def _line_results(request: AnyRequest) -> AsyncIterator[bytes]:
    """Enqueue lines that arrive together in one batch, or one by one if the batch is refused."""
    number = 0
    try:
        async for part in read_lines(request.http):
            await request.recheck_key()
            builder = await input_builder(request)
            batch, error = await _build(builder, part)
            async for tasks in _enqueue_lines(request, batch):
                yield _encode_lines(
                    LineResult(line=(number := number + 1), id=one.id, created=one.created) for one in tasks
                )
            if error is not None:
                raise error
    except ClientDisconnect:
        return
    except (Problem, WindlassError) as error:
        problem = problem_document(problem_for(error, request.http))
        yield _encode_lines([LineResult(line=number + 1, problem=problem)])


async def _build(builder: InputBuilder, lines: list[bytes]) -> tuple[list[NewTask], Exception | None]:
    """Build tasks from lines, up to the first that is invalid; also return its error."""
    batch: list[NewTask] = []
    for line in lines:
        try:
            body = await off_loop(len(line), decode_line, line, TaskInput)
            await builder.look_up([body])
            batch.append(await off_loop(len(line), builder.task, body))
        except (Problem, WindlassError) as error:
            return batch, error
    return batch, None


async def _enqueue_lines(request: AnyRequest, batch: list[NewTask]) -> AsyncIterator[list[EnqueuedTask]]:
    async for part in _within_rates(request, batch):
        try:
            tasks, _ = await store_tasks(request, part)
        except (Problem, UsageError, Refused, NotFound):
            if len(part) == 1:
                raise
        else:
            yield tasks
            continue
        for one in part:
            tasks, _ = await store_tasks(request, [one])
            yield tasks


async def _within_rates(request: AnyRequest, batch: list[NewTask]) -> AsyncIterator[list[NewTask]]:
    """Yield the tasks in parts that the key's rates have been charged for; wait until there is room."""
    key, service = request.caller.key, request.service
    if key is None or not limits_work(key):
        if batch:
            yield batch
        return
    while batch:
        number, seconds = service.rate_limiter.take_first(key, batch, SILENCE_SECONDS)
        if number:
            yield batch[:number]
            batch = batch[number:]
            continue
        if await wait_for_event(service.closing, max(seconds, _LEAST_PAUSE)):
            raise Problem("busy", "the server is stopping; send this line and the rest again")
        if has_disconnected(request.http):
            raise ClientDisconnect
        await request.recheck_key()
