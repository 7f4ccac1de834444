"""The seam: the protocol that every store implements. A store keeps tasks and moves them; it decides nothing.

Decisions (verdicts, actions, settings) go in as values; facts (tasks, receipts, counts) come out as values.
There are five roles, each with one kind of caller:

- `EnqueueStore`: programs enqueue tasks;
- `WorkStore`: workers claim tasks, keep their leases alive and settle them;
- `KeepStore`: the keeper promotes, rescues and prunes;
- `AskStore`: operators, and programs that wait for a result, read and change what is stored;
- `AdminStore`: installers create, migrate and check the schema.

Every verb is atomic and, on a durable store, durable when it returns. Every verb may be repeated after a lost
reply without harm. Only the store's clock counts: callers pass durations, and the store adds its own time.
A handle may be used from any number of threads and event loops.

`_stores/memory` is the executable specification; every store passes `windlass.testing.conformance`. To wrap a
store, subclass `_store.forward.ForwardingStore`. `_store.messages` has the verbs as messages, for HTTP.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import datetime, timedelta
from enum import Flag, StrEnum, auto
from types import TracebackType
from typing import Any, Protocol, TypeVar

from msgspec import UNSET, Struct, UnsetType

from .._model.attempt import Attempt
from .._model.filter import MAX_PAGE, Action, By, Count, Dimension, Filter, Page, Slice
from .._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from .._model.queue import Retention
from .._model.record import Record
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.transition import Applied, Pruned
from .._model.verdict import Settled, Settlement
from ..errors import NotSupported

R = TypeVar("R", bound=Record)


class Capability(Flag):
    """What only some stores can do. A store without a capability raises NotSupported."""

    JOIN = auto()  # enqueue and complete tasks in a transaction together with the caller's own writes
    SHARE = auto()  # be used by several processes
    MIGRATE = auto()  # has a versioned schema
    STRIPE = auto()  # spread a queue over stripes; elsewhere that setting is kept, without effect
    BLOCK = (
        auto()
    )  # `open`, `enqueue`, `now`, `records` in a thread without an event loop; else they need one


class Durability(StrEnum):
    """What an acknowledged write survives."""

    DURABLE = "durable"  # loss of power
    RELAXED = "relaxed"  # a crash of our processes, but perhaps not of the machine
    VOLATILE = "volatile"  # not even the end of the process


class Promise(Struct, frozen=True, kw_only=True):
    """A store's durability and the reason for it; logged at start-up and shown by `windlass check`."""

    durability: Durability
    why: str


class Wake(StrEnum):
    """A hint that a claim may succeed now (READY), or that a new task was scheduled (SCHEDULED)."""

    READY = "ready"
    SCHEDULED = "scheduled"


class Promoted(Struct, frozen=True, kw_only=True):
    """How many tasks became ready, and when the next one is due (None if none is scheduled)."""

    number: int
    next_at: datetime | None = None


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True, kw_only=True):
    """One line of the report of `check`."""

    severity: Severity
    subject: str
    message: str


class Phase(StrEnum):
    """When to apply a migration, relative to deploying the code that comes with it."""

    BEFORE = "before"  # before: the old code works with it too
    AFTER = "after"  # only once no old code runs


class Migration(Struct, frozen=True, kw_only=True):
    """One numbered step of a store's schema, and whether it has been applied."""

    number: int
    name: str
    applied: bool
    phase: Phase = Phase.BEFORE


class Join(Protocol):
    """A transaction to enqueue and settle in. Nothing takes effect until it is committed."""

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        """Enqueue the batch in the transaction. Awaitable if the driver is async."""

    def settle(self, batch: Sequence[Settlement]) -> Settled | Awaitable[Settled]:
        """Settle in the transaction each task whose lease still holds. Awaitable if the driver is async.

        Returns a receipt for each, as `WorkStore.settle` does, and claims nothing. Roll back the transaction
        unless all are APPLIED: REPEATED means that the lease was settled outside this transaction.
        """


class Transaction(Protocol):
    """A transaction on a connection of the store: `async with` on an event loop, `with` in a thread.

    Entering returns the connection, of an async or a blocking driver accordingly; pass it to `join`. Leaving
    commits, or rolls back if the block raised; the caller must do neither. A commit that fails raises, and
    raises StoreUnavailable if it is not known whether it took effect. Can be entered once; it may be left in
    another asyncio task than it was entered in.
    """

    async def __aenter__(self) -> Any:  # the driver's own type
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __enter__(self) -> Any:  # the driver's own type
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class EnqueueStore(Protocol):
    """The verbs of programs."""

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Store all tasks of the batch, or none of them.

        A task whose id or idempotency key exists already is not stored; the existing task is returned with
        `created=False`. Raises DuplicateTask if an open task has the same fingerprint, or one whose period
        (`unique_for`) has not passed, ended or not; IdempotencyConflict if the key was used for a different
        task, NotFound for an unknown predecessor.
        """

    def join(self, connection: object) -> Join:
        """Join the caller's own transaction on `connection`. Raises NotSupported if this store cannot."""


class WorkStore(Protocol):
    """The verbs of workers."""

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease up to `claim.limit` ready tasks to a session, lowest (rank, id) first.

        Skips paused queues, tasks at a limit, and tasks that have not started by their expiry. With
        `claim.types`, also tasks of other types, which stay ready for other claims; those that come first
        cost a lookup each. Raises SessionLost if the session has expired.
        """

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply the verdict of each task whose lease still holds and, in the same round trip, claim.

        Returns one receipt per settlement: APPLIED, REPEATED (it was applied before) or LOST (another worker
        has the task, or it was settled otherwise); only APPLIED changes anything. If the claim's session has
        expired the settlements are applied all the same and nothing is claimed. With a claim, a store of
        several shards may return UNKNOWN for tasks of a shard that did not answer: settle those again. A
        store may claim fewer than `claim.limit` tasks at once; then it says that there may be more.
        """

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Open or renew a session, store progress, and take back tasks that were granted but not received.

        Returns which leases are lost and which tasks are to be cancelled; `alive=False` if the session has
        expired.
        """

    def transaction(self) -> Transaction:
        """Return a transaction on a connection of the store, not yet begun. Raises NotSupported without JOIN.

        A transaction that stays open longer than the store allows is rolled back, and leaving it raises.
        """

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark a key on the lease's task; return whether this lease is the one that marked it.

        Of all leases on a task at most one gets True for a key; repeated by the same lease, it gets the same.
        Marks last as long as the task is stored, replays included. Raises LeaseLost.
        """

    def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield READY when a claim from these queues may succeed; without queues, SCHEDULED for the keeper.

        Hints may be late, repeated, wrong or lost, and of many listeners only some may get one.
        """


class KeepStore(Protocol):
    """The verbs of the keeper."""

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """Take or renew the lead for `lease_for`, or give it up with zero; return whether `holder` leads.

        At most one holder leads. A lead that would last longer than `lease_for` is ignored, as it was granted
        before the clock was set back; so all keepers must ask for the same time.
        """

    async def promote(self, limit: int) -> Promoted:
        """Make up to `limit` due tasks ready, earliest first."""

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Lease up to `limit` running tasks of expired sessions to this session, raising their fences.

        Attempts are not counted again, and each task still names its former worker. The order is undefined.
        Expired sessions that hold nothing are deleted. Raises SessionLost if this session has expired.
        """

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        """Delete up to `limit` ended tasks past their retention; return what was deleted.

        A task's retention is that of its queue, else that of its type (see `DeclaredType`), else `default`.
        Also deletes all expired idempotency keys, in steps that hold no lock for long. A task that another
        one waits for is kept, unless it is dead: then its successors are cancelled. With `by`, it is audited
        before anything is deleted, as it may take several steps.
        """


class AskStore(Protocol):
    """The verbs of operators, and of programs that wait for a result."""

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """Return a page of the tasks that match, ordered by id."""

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> Sequence[Count]:
        """Count the tasks that match, grouped by these dimensions and ordered by their values.

        With `sized`, also their bytes and the steps that follow those that are neither completed nor
        cancelled. That reads every task and never estimates.
        """

    async def ended(self, ids: Sequence[TaskId]) -> Sequence[TaskId]:
        """Return those of these tasks, at most `MAX_PAGE`, that have ended or are not stored, in any order.

        Leaves out tasks that a part of the store, such as a shard, would have to tell of and does not answer.
        """

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """Return the recorded attempts of a task, oldest first; at most the newest `MAX_RECORDED`."""

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        """Cancel, replay, discard or expire up to `limit` tasks that match, oldest first; return which.

        Skips tasks in other states, and does not replay one whose fingerprint an open task has. What people
        do is audited in the same transaction; `Expire`, which keepers apply, is not.
        """

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        """Insert a record or replace the one of the same kind and name.

        With `by`, it is audited in the same transaction; programs and keepers pass None. With `expected`, the
        stored record must be equal to it, or absent for None; raises Conflict otherwise, unless the stored
        one is already equal to `record`. Raises NotSupported for a kind that only the store itself writes.
        """

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """Return a page of the records of a kind, ordered by name."""

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Delete a record; return whether it existed. Audited as `put` is, if it did.

        The tasks of a removed session become rescuable.
        """


class AdminStore(Protocol):
    """The verbs of installers."""

    async def migrations(self) -> Sequence[Migration]:
        """Return every migration that this code or the store knows, in order."""

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Migrate up or down to `target` (None: newest); return the steps taken. One process at a time."""

    async def check(self) -> Sequence[Finding]:
        """Check settings, schema and data; return findings, good and bad."""


class Store(EnqueueStore, WorkStore, KeepStore, AskStore, AdminStore, Protocol):
    """All roles, and the handle itself."""

    @property
    def capabilities(self) -> Capability:
        """What this store can do that not every store can. Final once it is open."""

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives here."""

    async def open(self) -> None:
        """Connect, and create the schema if there is none. May be called again."""

    async def close(self) -> None:
        """Close all connections. May be called again."""

    def another(self) -> "Store":
        """Return a further handle on the same store, not yet open, for another thread and event loop."""

    async def now(self) -> datetime:
        """Return the store's current time."""


async def all_records(store: AskStore, kind: type[R]) -> list[R]:
    """Return all records of a kind, ordered by name."""
    records: list[R] = []
    page = Page(limit=MAX_PAGE)
    while True:
        found = await store.records(kind, page)
        records += found.items
        if found.cursor is None:
            return records
        page = Page(limit=MAX_PAGE, cursor=found.cursor)


def require(store: Store, capability: Capability, what: str) -> None:
    """Raise NotSupported unless the store can; `what` completes "this store cannot …"."""
    if capability not in store.capabilities:
        raise NotSupported(f"this store cannot {what} ({store.promise.why}); docs/stores.md says which can")
