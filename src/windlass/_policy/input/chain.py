"""Chains and groups: what follows a task, and what it is given. (P10, P11)

A chain's steps travel inside their predecessor (`Task.next`), each with its id, and become tasks in the
step that completes it. A group's last task exists from the start, waiting for its predecessors.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..._model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NewTask, Task, TaskId
from ...errors import InvalidOption

MAX_LEVELS = 200
_encoder = msgspec.json.Encoder()


class Nested(Protocol):
    """Whatever has steps below it."""

    @property
    def next(self) -> Sequence[Any]:
        """What follows it."""


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task to be: everything decided but the moment, and perhaps its predecessor's result."""

    id: TaskId
    type: str
    payload: Raw
    queue: str = DEFAULT_QUEUE
    tenant: str = ""
    priority: int = 0
    boost: int = 0
    delay: timedelta | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    result_into: str | None = None
    secret: tuple[str, ...] = ()
    unique: bool = False  # heeded where it is the first of a request
    next: tuple["Step", ...] = ()

    def then(self, *steps: "Step") -> "Step":
        """This step, followed by these: all of them are enqueued when it completes."""
        return replace(self, next=(*self.next, *steps))


def chain(first: Step, *others: Step) -> Step:
    """Steps one after another, each enqueued when the one before completes."""
    following: tuple[Step, ...] = ()
    for step in reversed((first, *others)):
        following = (step.then(*following),)
    return following[0]


_decoder = msgspec.json.Decoder(tuple[Step, ...])


def with_fresh_ids(step: Step, make_id: Callable[[], TaskId]) -> Step:
    """The same with fresh ids all the way down: a step can be enqueued again, a task is made once."""
    check_levels(step.next)
    return _renewed(step, make_id)


def _renewed(step: Step, make_id: Callable[[], TaskId]) -> Step:
    return replace(step, id=make_id(), next=tuple(_renewed(below, make_id) for below in step.next))


def encode_steps(steps: tuple[Step, ...]) -> bytes | None:
    """The steps as a task carries them; None for none."""
    check_levels(steps)
    return _encoder.encode(steps) if steps else None


def decode_steps(data: bytes | None) -> tuple[Step, ...]:
    """The steps a task carries."""
    return _decoder.decode(data) if data else ()


def all_ids(steps: tuple[Step, ...]) -> tuple[TaskId, ...]:
    """The ids of these steps and of all that follow them, each before what follows it."""
    return tuple(found for step in steps for found in (step.id, *all_ids(step.next)))


def successors(task: Task, result: bytes | None) -> tuple[NewTask, ...]:
    """The tasks that follow a completed one, its result handed on where a step asks for it."""
    return tuple(_task(step, task, result) for step in decode_steps(task.next))


def with_result(payload: bytes, name: str, result: bytes | None) -> bytes:
    """The payload with one parameter more: the JSON of a result."""
    document = msgspec.json.decode(payload, type=dict[str, Raw])
    return _encoder.encode({**document, name: Raw(result or b"null")})


def results_list(results: tuple[bytes | None, ...]) -> bytes:
    """Several results as one JSON array, in the order of the predecessors."""
    return _encoder.encode([Raw(result or b"null") for result in results])


def check_levels(steps: Sequence[Nested]) -> None:
    """Refuse what nests so deep that nobody could go through it."""
    if _levels(steps) > MAX_LEVELS:
        raise InvalidOption(
            f"a chain goes at most {MAX_LEVELS} tasks deep; let the last one enqueue the rest"
        )


def _levels(steps: Sequence[Nested]) -> int:
    """How deep the steps nest. Never recurses, as the encoder does."""
    levels = 0
    while steps and levels <= MAX_LEVELS:
        steps = [below for step in steps for below in step.next]
        levels += 1
    return levels


def _task(step: Step, predecessor: Task, result: bytes | None) -> NewTask:
    payload = bytes(step.payload)
    return NewTask(
        id=step.id,
        type=step.type,
        payload=with_result(payload, step.result_into, result) if step.result_into else payload,
        root=predecessor.root,
        queue=step.queue,
        tenant=step.tenant,
        priority=step.priority,
        boost=step.boost,
        delay=step.delay,
        max_attempts=step.max_attempts,
        timeout=step.timeout,
        secret=step.secret,
        next=encode_steps(step.next),
        trace=predecessor.trace,
        enqueued_by=predecessor.enqueued_by,
    )
