"""Which tasks to find, count or act on, and the actions of operators."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import nlargest, nsmallest
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from ..errors import InvalidOption
from .brief import Brief
from .state import PENDING, State
from .task import MAX_DELAY, Documented, Error, Task, TaskId

T = TypeVar("T")

MAX_PAGE = 1000


class Filter(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """Which tasks: every field that is set must match; an empty filter matches all.

    `created_after` and `finished_after` are inclusive, `created_before` and `finished_before` exclusive.
    `expires_before` is exclusive and matches only tasks that have not started. `error` matches a part of the
    last error's type or message, `failures` its failure; "" matches tasks without one. `chained` matches
    only tasks of chains and groups: those that steps follow, and those that have another root.
    """

    ids: tuple[TaskId, ...] | None = None
    states: tuple[State, ...] | None = None
    types: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None
    root: TaskId | None = None
    chained: bool = False
    idempotency_key: str | None = None
    error: str | None = None
    failures: tuple[str, ...] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    expires_before: datetime | None = None

    @property
    def is_expiring(self) -> bool:
        """Whether it matches only pending tasks that expire, so that their index finds them."""
        return self.expires_before is not None and bool(self.states) and PENDING.issuperset(self.states or ())

    def __post_init__(self) -> None:
        for name in ("ids", "states", "types", "queues", "tenants", "failures"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise InvalidOption(f"{name} must be a sequence; for a single value pass ({value!r},)")
            if value is not None and not isinstance(value, tuple):
                force_setattr(self, name, tuple(value))
        if self.states is not None:
            force_setattr(self, "states", tuple(map(_state, self.states)))


def _state(value: str) -> State:
    try:
        return State(value)
    except ValueError:
        raise InvalidOption(f"states must be of {', '.join(State)}, got {value!r:.80}") from None


class Page(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """Which page of a listing, ordered by id and so by age. `cursor` is the last id of the previous page."""

    limit: int = 100
    cursor: str | None = None
    newest_first: bool = False


class Slice(Brief, Struct, Generic[T], frozen=True, gc=False, kw_only=True):
    """The items of a page; `cursor` leads to the next page, and is None on the last."""

    items: tuple[T, ...]
    cursor: str | None = None


def page_of(rows: Iterable[T], page: Page, name: Callable[[T], str]) -> Slice[T]:
    """Cut one page out of all rows, sorted by name."""
    cursor, newest_first = page.cursor, page.newest_first
    if cursor is not None:
        rows = [row for row in rows if (name(row) < cursor if newest_first else name(row) > cursor)]
    found = (nlargest if newest_first else nsmallest)(page.limit + 1, rows, key=name)
    items = tuple(found[: page.limit])
    return Slice(items=items, cursor=name(items[-1]) if items and len(found) > page.limit else None)


class Dimension(StrEnum):
    """What tasks can be counted by."""

    STATE = "state"
    QUEUE = "queue"
    TYPE = "type"
    TENANT = "tenant"
    FAILURE = "failure"  # "" for tasks without one


class Count(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """The number of tasks with these values, one value for each dimension. Not `exact`: an estimate.

    `oldest_at` is when the first of them was due; for an estimate, the first of those examined. `steps` and
    `bytes` are counted on request: the steps that are yet to become tasks, and the size of payloads, results
    and following steps.
    """

    values: tuple[str, ...]
    number: int
    exact: bool = True
    oldest_at: datetime | None = None  # None: there are none
    steps: int = 0
    bytes: int = 0


class Failure(Struct, Documented, frozen=True, kw_only=True):
    """A failure: the dead tasks of one type that failed alike, with the same error from the same place.

    `error` is that of the newest task, `task_id`, without secrets. `first_at` and `last_at` are when the
    oldest and the newest task died. Not `exact`: `number` is an estimate.
    """

    id: str  # the `failure` of its tasks; "" if they died before windlass recorded failures
    type: str
    error: Error | None
    task_id: TaskId
    number: int
    exact: bool
    first_at: datetime
    last_at: datetime
    queues: tuple[str, ...]


class By(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """Who acts and why, for the audit log."""

    who: str
    why: str = ""


class CancelTasks(Struct, frozen=True, gc=False, kw_only=True, tag="cancel"):
    """Cancel pending tasks and their waiting successors; request that running tasks stop."""

    by: By


class Replay(Brief, Struct, frozen=True, gc=False, kw_only=True, tag="replay"):
    """Make dead or cancelled tasks due again with attempt 0 and without an expiry.

    With `payload`, they get another payload; `fingerprint` is that of the other payload, for tasks that have
    one (None leaves it as it is). With `run_at`, the first of them is due then, and each further one an
    `interval` after the one before: they are scheduled until then, so that it needs nobody's patience.
    """

    by: By
    payload: bytes | None = None
    fingerprint: str | None = None
    run_at: datetime | None = None  # None: all are due at once
    interval: timedelta = timedelta(0)

    def fingerprint_of(self, task: Task) -> str | None:
        """Return the fingerprint that the task has once it is replayed."""
        return self.fingerprint if self.fingerprint and task.fingerprint else task.fingerprint

    def due_at(self, number: int, now: datetime) -> datetime:
        """Return when the task is due that is replayed after `number` others: from now to ten years ahead."""
        if self.run_at is None:
            return now
        latest = now + MAX_DELAY
        room = latest - min(self.run_at, latest)
        if number and self.interval > room / number:
            return latest
        return min(max(self.run_at + number * self.interval, now), latest)


class Discard(Struct, frozen=True, gc=False, kw_only=True, tag="discard"):
    """Delete dead tasks; the audit log records it."""

    by: By


class Reveal(Struct, frozen=True, gc=False, kw_only=True, tag="reveal"):
    """Record that the secrets of tasks are shown to a person; nothing else changes.

    With `subject`, such as "schedule nightly", it is about that record and no tasks.
    """

    by: By
    subject: str = ""


class Trigger(Struct, frozen=True, gc=False, kw_only=True, tag="trigger"):
    """Record that a person enqueued these tasks by triggering a schedule; nothing else changes."""

    by: By
    schedule: str


LoggedAction: TypeAlias = Reveal | Trigger
"""What only the audit log records."""


class TaskDocuments(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """The JSON that a task is stored with: its payload, the steps that follow it, its result."""

    payload: bytes
    next: bytes | None = None
    result: bytes | None = None


def documents_of(task: Task) -> TaskDocuments:
    """Return the documents that a task has."""
    return TaskDocuments(payload=task.payload, next=task.next, result=task.result)


class Rewritten(Struct, frozen=True, gc=False, kw_only=True):
    """A task whose documents are replaced, if they are still those of `before`."""

    id: TaskId
    before: TaskDocuments
    after: TaskDocuments


class Rewrite(Struct, frozen=True, gc=False, kw_only=True, tag="rewrite"):
    """Replace the documents of tasks in any state, with one entry in the audit log for all of them.

    They must mean the same: it is for encrypting them with another key. Which tasks is in `tasks`, not in a
    filter. Nothing else of a task changes, and nobody is woken.
    """

    by: By
    tasks: tuple[Rewritten, ...]


OperatorAction: TypeAlias = CancelTasks | Replay | Discard | LoggedAction | Rewrite
"""What people do to tasks: audited."""


class Expire(Struct, frozen=True, gc=False, kw_only=True, tag="expire"):
    """Cancel tasks that have not started by their expiry, and their waiting successors. Not audited."""


Change: TypeAlias = CancelTasks | Replay | Discard | Expire
"""Actions that change tasks."""

Action: TypeAlias = OperatorAction | Expire
