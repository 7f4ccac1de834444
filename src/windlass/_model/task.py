"""Tasks: as they are requested (`NewTask`) and as the store has them (`Task`)."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from .brief import Brief
from .state import State

TaskId: TypeAlias = str
"""A UUIDv7 in its canonical spelling, made by the client."""

TASK_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
"""The spelling of a task id, as a regular expression: a UUID in lower case."""

RESERVED = "\x1f"
"""The first character of keys that windlass makes itself: not printable, so that no caller can give one."""

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 8
MAX_ATTEMPTS = 10_000  # the most that `max_attempts` may be
CANCELLED = "Cancelled"  # the type of the error of a task that was cancelled
EXPIRED = "Expired"  # the type of the error of a task that had not started by its expiry
DAMAGED = "Damaged"  # the type of the error of a task that cannot be read as it is stored
MAX_DELAY = timedelta(days=3660)  # how far ahead a task may be due: ten years
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # the earliest `run_at`

_MILLISECOND = timedelta(milliseconds=1)
_task_id = re.compile(TASK_ID, re.ASCII)


def is_task_id(value: object) -> bool:
    """Whether this is text spelled like a task id."""
    return isinstance(value, str) and _task_id.fullmatch(value) is not None


class Documented:
    """What has a JSON document, for an API of one's own: `dict(…)` works, and FastAPI can return it as it is.

    Documents are a layer above the model: they are found by name when one is asked for.
    """

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values with secrets masked, as the HTTP API shows them.

        Instants are ISO 8601, durations are seconds, payload and result are decoded.
        """
        document: dict[str, Any] = msgspec.to_builtins(_documents().document_of(self), str_keys=True)
        return document

    def to_json(self) -> str:
        """Return the same as JSON."""
        return msgspec.json.encode(self.as_dict()).decode()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.as_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        schemas = import_module("pydantic_core.core_schema")
        shown = schemas.plain_serializer_function_ser_schema(cls.as_dict, when_used="json")
        return schemas.is_instance_schema(cls, serialization=shown)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> Any:
        return _documents().document_schema(cls)


def _documents() -> Any:
    return import_module("windlass._documents.tasks")


class Error(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """An error of a task: bounded in size, printable, free of secrets. Never an exception object."""

    type: str
    message: str
    traceback: str | None = None


class Progress(Brief, Struct, Documented, frozen=True, gc=False, kw_only=True):
    """The progress that a running task reports."""

    fraction: float
    message: str = ""


class NewTask(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """A validated task, ready to be stored.

    `run_at` and `delay` exclude each other; with neither, the task is due at once. Stores refuse a `run_at`
    before 1970 and one, or a delay, of more than ten years from now. `expires_at` and `expires_in` exclude
    each other too and are bounded alike; the latter is more than 0, and counts from the enqueue, or from when
    the task is due if that is later.
    """

    id: TaskId
    type: str
    payload: bytes
    root: TaskId
    queue: str = DEFAULT_QUEUE
    tenant: str = ""  # "": no tenant
    priority: int = 0
    run_at: datetime | None = None
    delay: timedelta | None = None
    expires_at: datetime | None = None
    expires_in: timedelta | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    idempotency_key: str | None = None
    idempotency_digest: str = ""  # of type and payload: the same key must mean the same request
    idempotency_for: timedelta | None = None  # None: the key lives as long as the task's record
    fingerprint: str | None = None  # if set, refused while a task with the same one has not ended
    unique_for: timedelta | None = None  # how long it is refused at least, counted from the enqueue
    next: bytes | None = None  # the steps that follow, as JSON; see _policy/input/chain.py
    after: tuple[TaskId, ...] = ()  # predecessors: wait until all have completed
    before: tuple[TaskId, ...] = ()  # tasks that, if they wait, wait for this one too; excludes `after`
    result_into: str | None = None  # the parameter that receives the predecessors' results
    secret: tuple[str, ...] = ()  # payload fields that are masked wherever payloads are shown
    trace: str | None = None  # a W3C traceparent
    enqueued_by: str = ""


class Predecessor(Brief, Struct, frozen=True, gc=False):
    """What a task takes over from one that it waits for. None of it ever changes."""

    id: TaskId
    root: TaskId
    tenant: str
    secret: tuple[str, ...] = ()  # fields of its payload, which its result may contain


class Enqueued(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """The result of an enqueue: the task's id. `created` is False if the task existed before.

    `cancelled` is the reason if the new task was cancelled at once, as a predecessor had been.
    """

    id: TaskId
    created: bool
    cancelled: str | None = None


class Task(Brief, Struct, Documented, frozen=True, gc=False):
    """A task as the store had it at one moment."""

    id: TaskId
    type: str
    payload: bytes
    root: TaskId
    queue: str
    tenant: str
    priority: int
    boost: int  # head start of its priority in milliseconds, by its queue's ageing when it became ready
    state: State
    attempt: int  # counted attempts, including the running one
    max_attempts: int
    fence: int  # number of the newest lease; never falls
    run_at: datetime
    created_at: datetime
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    timeout: timedelta | None = None
    session: str | None = None  # of the worker that holds the lease
    worker: str | None = None  # name of the worker that ran it last
    duration: float | None = None  # seconds that the last attempt ran
    cancel_requested: bool = False
    progress: Progress | None = None
    result: bytes | None = None
    error: Error | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None
    next: bytes | None = None
    after: tuple[TaskId, ...] = ()
    result_into: str | None = None
    secret: tuple[str, ...] = ()
    trace: str | None = None
    enqueued_by: str = ""
    unhandled_since: datetime | None = None  # when only workers without a handler began to claim it
    expires_at: datetime | None = None  # if it has not started by then, it never starts
    cancelled_by: str | None = None  # who cancelled it, or asked it to stop
    cancel_reason: str | None = None
    failure: str | None = None  # what it failed with last, as an id; None if it completed or was cancelled

    @property
    def rank(self) -> int:
        """The sort key of ready tasks, lowest first."""
        return rank_of(self.run_at, self.boost)

    @property
    def due_at(self) -> datetime:
        """Since when it may run: a `run_at` before its creation does not count as waiting."""
        return max(self.run_at, self.created_at)

    def is_expired(self, now: datetime) -> bool:
        """Whether it has not started by its expiry. A released or snoozed first attempt does not count."""
        return self.expires_at is not None and self.expires_at <= now and self.attempt == 0

    def _fields_to_show(self) -> tuple[str, ...]:
        return _SHOWN


_SHOWN = ("id", "type", "queue", "tenant", "state", "attempt", "payload", "result", "error", "progress")
"""What the repr of a task has of it."""


def may_need_results(task: "NewTask | Task") -> bool:
    """Whether a task takes the results of predecessors, whose records it needs until it has completed."""
    return task.result_into is not None and bool(task.after)


def rank_of(run_at: datetime, boost: int) -> int:
    """Milliseconds from 1970 to `run_at`, rounded down, minus the boost."""
    return (run_at - EARLIEST) // _MILLISECOND - boost


def is_expiry(duration: timedelta) -> bool:
    """Whether a task may expire this long after it is due. After no time at all it could never start."""
    return timedelta(0) < duration <= MAX_DELAY


def expiry_of(new: NewTask, run_at: datetime, now: datetime) -> datetime | None:
    """The instant by which a task that is enqueued now must have started; None: it does not expire."""
    return new.expires_at if new.expires_in is None else max(run_at, now) + new.expires_in


def synthetic_trace(number: int) -> str:
    """Make a traceparent from 128 bits for a request without one, so that its tasks share a trace id.

    It has no span: its span id is the first half of its trace id, which tells workers that the missing
    "sampled" flag is not a sampling decision.
    """
    return f"00-{number:032x}-{number >> 64:016x}-00"
