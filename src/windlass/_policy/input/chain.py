"""Chains: the steps that follow a task, and the results they receive.

The steps of a chain are stored in their predecessor (`Task.next`), each with its id, and become tasks in the
transaction that completes it, those `on_failure` in the one that buries it. A group's last task exists from
the start, waiting for its predecessors, and each step of a chain in the group joins these when it becomes a
task.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..._model.brief import Brief
from ..._model.options import Unique
from ..._model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, Error, NewTask, Task, TaskId
from ...errors import InvalidOption
from ..secrets.fields import inherited, merged
from ..secrets.mask import mask_of
from ..secrets.places import secret_paths
from .fingerprint import fingerprint
from .quote import kind_of

MAX_LEVELS = 200
MAX_STEPS = 1_000
MAX_STEPS_BYTES = 4 << 20
_encoder = msgspec.json.Encoder()


MaySee: TypeAlias = Callable[[str, str], bool]
"""Takes a queue and a tenant; returns whether the reader may see their tasks."""


class Nested(Protocol):
    """Anything that steps follow."""

    @property
    def next(self) -> Sequence[Any]:
        """The steps that follow it."""


class Step(Brief, Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A future task, validated: all but when it is enqueued and, perhaps, its predecessor's result."""

    id: TaskId
    on_failure: bool = False  # enqueued if its predecessor dies, not if it completes
    type: str
    payload: Raw
    queue: str = DEFAULT_QUEUE
    tenant: str = ""  # "": that of its predecessor
    priority: int = 0
    delay: timedelta | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    expires: timedelta | None = None  # if it has not started this long after its enqueue, or after it is due
    result_into: str | None = None
    secret: tuple[str, ...] = ()
    unique: Unique = False
    unique_for: timedelta | None = None
    before: tuple[TaskId, ...] = ()  # the end of the group that its chain is in
    next: tuple["Step", ...] = ()

    def then(self, *steps: "Step") -> "Step":
        """Return this step followed by these, which are all enqueued when it completes."""
        return replace(self, next=(*self.next, *_only_steps(steps)))


def chain(first: Step, *others: Step, on_failure: Step | None = None) -> Step:
    """Return steps in sequence, each enqueued when the one before completes.

    `on_failure`: a step that is enqueued if one of them dies.
    """
    following: tuple[Step, ...] = ()
    failed = () if on_failure is None else failure_steps(_only_steps((on_failure,)))
    for step in reversed(_only_steps((first, *others))):
        following = (step.then(*following, *failed),)
    return following[0]


def failure_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return steps that are enqueued if their predecessor dies."""
    return tuple(replace(step, on_failure=True) for step in steps)


def _only_steps(given: tuple[object, ...]) -> tuple[Step, ...]:
    steps = tuple(one for one in given if isinstance(one, Step))
    if len(steps) < len(given):
        wrong = next(one for one in given if not isinstance(one, Step))
        raise InvalidOption(
            f"a chain consists of steps, not of {kind_of(wrong)}; make one with a task type's step(), "
            f"as in charge.step(amount=9)"
        )
    return steps


_decoder = msgspec.json.Decoder(tuple[Step, ...])


def with_fresh_ids(step: Step, make_id: Callable[[], TaskId]) -> Step:
    """Copy a step with new ids for it and all that follow, so that it can be enqueued again."""
    check_number(step.next)
    return _renewed(step, make_id)


def _renewed(step: Step, make_id: Callable[[], TaskId]) -> Step:
    return replace(step, id=make_id(), next=tuple(_renewed(below, make_id) for below in step.next))


def encode_steps(steps: tuple[Step, ...]) -> bytes | None:
    """Encode steps for `Task.next`; None if there are none."""
    return _encoder.encode(steps) if steps else None


def encode_new_steps(steps: tuple[Step, ...]) -> bytes | None:
    """Encode the steps of a new task. Raises InvalidOption if they are too many, too deep or too large."""
    check_number(steps)
    data = encode_steps(steps)
    if data is not None:
        check_size(data)
    return data


def decode_steps(data: bytes | None) -> tuple[Step, ...]:
    """Decode the steps of `Task.next`. Raises InvalidOption if they cannot be read."""
    if not data:
        return ()
    try:
        return _decoder.decode(data)
    except RecursionError:
        raise InvalidOption("the steps that follow a task are nested too deeply") from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise InvalidOption(f"invalid steps in `next`: {error}") from None


def readable_steps(data: bytes | None) -> tuple[Step, ...]:
    """Decode the steps of `Task.next`, to show them; none if they cannot be read."""
    try:
        return decode_steps(data)
    except InvalidOption:
        return ()


def all_ids(steps: tuple[Step, ...]) -> tuple[TaskId, ...]:
    """Return the ids of steps and of all that follow them if nothing fails, each before its successors."""
    return tuple(found for step in steps if not step.on_failure for found in (step.id, *all_ids(step.next)))


def number_of_steps(steps: tuple[Step, ...]) -> int:
    """Return how many steps these are with all that may follow them."""
    return sum(1 + number_of_steps(step.next) for step in steps)


def awaited_by(steps: tuple[Step, ...], waiting: TaskId) -> tuple[Step, ...]:
    """Return steps that a waiting task waits for too, from when they are enqueued; not those on failure."""
    return tuple(
        step if step.on_failure else replace(step, before=(waiting,), next=awaited_by(step.next, waiting))
        for step in steps
    )


def awaited_ends(task: Task, waiting: TaskId) -> tuple[TaskId, ...]:
    """Return the tasks with whose results `task` ends for a task that waits for it.

    These are the ends of its chain if that is waited for, in order, and otherwise the task itself.
    """
    return _ends(tuple(step for step in decode_steps(task.next) if waiting in step.before)) or (task.id,)


def _ends(steps: tuple[Step, ...]) -> tuple[TaskId, ...]:
    return tuple(end for step in steps if not step.on_failure for end in _ends(step.next) or (step.id,))


def all_secret(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Return the names of the secret fields of steps and of all that follow them."""
    return tuple(name for step in steps for name in (*step.secret, *all_secret(step.next)))


def successors(task: Task, result: bytes | None, secrets: tuple[str, ...] = ()) -> tuple[NewTask, ...]:
    """Return the tasks that follow a completed one, with its result where a step takes it.

    Secret values of its payload that are anywhere in its result are secret in these tasks, too, and so are
    `secrets`, those of results that it took.
    """
    steps = tuple(step for step in decode_steps(task.next) if not step.on_failure)
    if result is not None and any(step.result_into for step in steps):
        paths = secret_paths(msgspec.json.decode(result), mask_of(task.payload, task.secret, secrets).values)
        task = replace(task, secret=merged(task.secret, paths))
    return tuple(_task(step, task, result) for step in steps)


def successors_on_failure(task: Task, error: Error) -> tuple[NewTask, ...]:
    """Return the tasks that follow a task that dies, with its failure where a step takes a result."""
    failure = {"id": task.id, "type": task.type, "error": {"type": error.type, "message": error.message}}
    steps = (step for step in decode_steps(task.next) if step.on_failure)
    return tuple(_task(step, task, _encoder.encode(failure)) for step in steps)


def tenant_of(step: Step, before: str) -> str:
    """Return the tenant of a step's task: its own, or that of the task before it."""
    return step.tenant or before


def visible_steps(steps: tuple[Step, ...], before: str, may_see: MaySee) -> tuple[Step, ...]:
    """Return the steps that a reader may see, without those behind one that the reader may not see.

    `before` is the tenant of the task before them.
    """
    return tuple(
        replace(step, next=visible_steps(step.next, tenant, may_see))
        for step in steps
        if may_see(step.queue, tenant := tenant_of(step, before))
    )


def with_result(payload: bytes, name: str, result: bytes | None) -> bytes:
    """Add a parameter with the JSON of a result to a payload."""
    document = msgspec.json.decode(payload, type=dict[str, Raw])
    return _encoder.encode({**document, name: Raw(result or b"null")})


def results_list(results: tuple[bytes | None, ...]) -> bytes:
    """Return results as a JSON array, in the order of the predecessors."""
    return _encoder.encode([Raw(result or b"null") for result in results])


def check_number(steps: Sequence[Nested]) -> None:
    """Raise InvalidOption if steps nest deeper than `MAX_LEVELS`, or are more than `MAX_STEPS` in all.

    Without recursion: deep nesting must not overflow the stack here.
    """
    levels = number = 0
    while steps:
        levels, number = levels + 1, number + len(steps)
        if levels > MAX_LEVELS:
            raise InvalidOption(
                f"a chain can be at most {MAX_LEVELS} tasks long; let its last task enqueue the rest"
            )
        if number > MAX_STEPS:
            raise InvalidOption(
                f"more than {MAX_STEPS:,} steps follow one task; let one of them enqueue the rest"
            )
        steps = [below for step in steps for below in step.next]


def check_size(data: bytes) -> None:
    """Raise InvalidOption if encoded steps are larger than `MAX_STEPS_BYTES`."""
    if len(data) > MAX_STEPS_BYTES:
        raise InvalidOption(
            f"the steps that follow a task are {len(data):,} bytes of JSON, more than the limit of "
            f"{MAX_STEPS_BYTES:,}; store large data elsewhere and pass a reference to it"
        )


def _task(step: Step, predecessor: Task, result: bytes | None) -> NewTask:
    payload, tenant = bytes(step.payload), tenant_of(step, predecessor.tenant)
    if step.result_into:
        payload = with_result(payload, step.result_into, result)
    return NewTask(
        id=step.id,
        type=step.type,
        payload=payload,
        root=predecessor.root,
        queue=step.queue,
        tenant=tenant,
        priority=step.priority,
        delay=step.delay,
        max_attempts=step.max_attempts,
        timeout=step.timeout,
        expires_in=step.expires,
        before=step.before,
        fingerprint=fingerprint(step.unique, step.type, payload, step.priority, tenant),
        unique_for=step.unique_for,
        secret=inherited(step.secret, predecessor.secret, step.result_into),
        next=encode_steps(step.next),
        trace=predecessor.trace,
        enqueued_by=predecessor.enqueued_by,
    )
