"""Handing tasks in: one, many at once, or a stream of them. (P1, P2, I1)"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import ClientDisconnect

from ..._model.key import Scope
from ..._model.task import NewTask
from ...errors import InvalidOption, InvalidPayload, NotFound, Refused, UsageError, WindlassError
from ..operation import Answer, Asked, NoQuery, Operations
from ..task_input import Enqueued, Maker, StepInput, TaskInput, numbered, request_key
from ..task_submit import handed_in
from ..web.body import understood
from ..web.duplicate_names import refuse_repeats
from ..web.ndjson import NDJSON, Lines, Streamed
from ..web.problems import Problem, ProblemDocument, document, problem_of

enqueueing = Operations("tasks")

MAX_BATCH = 10_000
_AT_ONCE = 256 * 1024  # Bytes of payloads that are looked through before others have their turn.
_COST = 512  # What a task costs besides, in the same coin.


class Batch(Struct, kw_only=True, forbid_unknown_fields=True):
    """Tasks to enqueue, all or none. `then` waits until all of them have completed."""

    tasks: Annotated[list[TaskInput], Meta(min_length=1, max_length=MAX_BATCH)]
    then: StepInput | UnsetType = UNSET


class BatchEnqueued(Struct, kw_only=True):
    """These stand, in the order they were given; `then` is last."""

    tasks: list[Enqueued]


class LineEnqueued(Struct, kw_only=True):
    """What became of a line: the task that stands, or the problem with it, which ends the answer."""

    line: int
    id: str | None = None
    created: bool | None = None
    problem: ProblemDocument | None = None


@enqueueing(
    "POST",
    "/tasks",
    scope=Scope.ENQUEUE,
    bound=True,
    body=TaskInput,
    answer=Enqueued,
    status=201,
    answers=(200, 409),
    hears=("Idempotency-Key",),
    says=("Location", "Idempotency-Replayed"),
)
async def enqueue(asked: Asked[NoQuery, TaskInput]) -> Answer:
    """Enqueue a task.

    It is answered once the task is durable. With the header `Idempotency-Key` a repeat gets the same answer,
    and the same key with another body is refused (422). With `idempotency_key` in the body a repeat is
    answered 200, with the task that stands. A task that must be `unique` and stands already is refused (409).
    """
    new = Maker(asked.service.app, asked.caller, asked.request).task(asked.body)
    (made,), is_repeat = await handed_in(asked, [new], request_key(asked.request, asked.raw))
    headers = {**asked.location(made.id), **_told(is_repeat)}
    return Answer(value=made, status=201 if made.created else 200, headers=headers)


@enqueueing(
    "POST",
    "/tasks/batch",
    scope=Scope.ENQUEUE,
    bound=True,
    body=Batch,
    answer=BatchEnqueued,
    status=201,
    answers=(404, 409),
    hears=("Idempotency-Key",),
    says=("Idempotency-Replayed",),
)
async def enqueue_batch(asked: Asked[NoQuery, Batch]) -> Answer:
    """Enqueue up to 10,000 tasks, all or none.

    `Idempotency-Key` is for the batch as a whole. Tasks that stand already by their own `idempotency_key` are
    answered with `created: false`; `then` cannot wait for those (404).
    """
    maker = Maker(asked.service.app, asked.caller, asked.request)
    batch: list[NewTask] = []
    looked = 0
    for number, one in enumerate(asked.body.tasks):
        try:
            batch.append(maker.task(one))
        except (InvalidPayload, InvalidOption) as error:
            raise numbered(error, number) from None
        looked += _COST + len(batch[-1].payload)
        if looked > _AT_ONCE:
            looked = 0
            await asyncio.sleep(0)
    if not isinstance(asked.body.then, UnsetType):
        batch = [*maker.group(batch, asked.body.then)]
    made, is_repeat = await handed_in(asked, batch, request_key(asked.request, asked.raw))
    return Answer(value=BatchEnqueued(tasks=made), headers=_told(is_repeat))


@enqueueing(
    "POST",
    "/tasks/stream",
    scope=Scope.ENQUEUE,
    bound=True,
    body=TaskInput,
    takes=NDJSON,
    answer=LineEnqueued,
    gives=NDJSON,
)
async def enqueue_stream(asked: Asked[NoQuery, None]) -> Streamed:
    """Enqueue any number of tasks, a line of JSON each (NDJSON).

    Each line is answered by a line, once its task is durable: read the answer while you send. The first line
    that cannot be kept is answered with its `problem`, and ends the answer; those before it stand. Give each
    line an `idempotency_key`, and all of it can be sent again; `Idempotency-Key` is for one request, and is
    refused. Blank lines do not count.
    """
    if "idempotency-key" in asked.request.headers:
        raise Problem(422, "invalid-option", "a stream is no one request: give each line an idempotency_key")
    return Streamed(_kept(asked, Lines(asked.request)), media_type=NDJSON)


async def _kept(asked: Asked[NoQuery, None], lines: Lines) -> AsyncIterator[bytes]:
    """The answers. Lines that come together are kept together, and one by one if they cannot be."""
    maker = Maker(asked.service.app, asked.caller, asked.request)
    number = 0
    try:
        async for part in lines:
            await asked.still_welcome()
            batch, wrong = _made(maker, part)
            async for made in _enqueued(asked, batch):
                yield b"".join(_line(number := number + 1, one) for one in made)
            if wrong is not None:
                raise wrong
    except ClientDisconnect:
        return
    except Problem as problem:
        yield _encoder.encode(LineEnqueued(line=number + 1, problem=document(problem))) + b"\n"
    except WindlassError as error:
        yield _encoder.encode(LineEnqueued(line=number + 1, problem=document(problem_of(error)))) + b"\n"


def _made(maker: Maker, lines: list[bytes]) -> tuple[list[NewTask], Exception | None]:
    """The tasks of these lines, up to the first that is none."""
    batch: list[NewTask] = []
    for line in lines:
        try:
            with understood():
                said = _decoder.decode(line)
                refuse_repeats(line, TaskInput)
                batch.append(maker.task(said))
        except (Problem, WindlassError) as problem:
            return batch, problem
    return batch, None


async def _enqueued(asked: Asked[NoQuery, None], batch: list[NewTask]) -> AsyncIterator[list[Enqueued]]:
    if not batch:
        return
    try:
        made, _ = await handed_in(asked, batch, None)
    except (Problem, UsageError, Refused, NotFound):
        if len(batch) == 1:
            raise
    else:
        yield made
        return
    for one in batch:
        made, _ = await handed_in(asked, [one], None)
        yield made


def _told(is_repeat: bool) -> dict[str, str]:  # noqa: FBT001
    return {"Idempotency-Replayed": "true"} if is_repeat else {}


def _line(number: int, made: Enqueued) -> bytes:
    return _encoder.encode(LineEnqueued(line=number, id=made.id, created=made.created)) + b"\n"


_decoder = msgspec.json.Decoder(TaskInput)
_encoder = msgspec.json.Encoder()
