"""The seam. A store keeps tasks and moves them; it decides nothing.

Decisions go in as values, facts come out as values. Five roles, each with one kind of caller: programs
enqueue, workers claim and settle, the keeper keeps house, people ask, and installers nurse the store.
Every verb is atomic and, on a durable store, durable on return. Every verb may be repeated after a lost
reply without harm. The store's clock is the only one: durations go in, and the store adds its own now.
A handle serves any number of threads and event loops.

`_stores/memory` is the executable specification; `windlass.testing.conformance` is the suite that every
store passes.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import datetime, timedelta
from enum import Flag, StrEnum, auto
from types import TracebackType
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from .._model.attempt import Attempt
from .._model.filter import MAX_PAGE, Action, By, Count, Dimension, Filter, Page, Slice
from .._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from .._model.queue import Retention
from .._model.record import Record
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.verdict import Receipt, Settled, Settlement
from ..errors import NotSupported

R = TypeVar("R", bound=Record)


class Capability(Flag):
    """What not every store can do. A store that cannot refuses (`NotSupported`); it never pretends."""

    JOIN = auto()  # enqueue, and complete a task, inside a transaction that has other writes as well
    SHARE = auto()  # several processes on one store
    MIGRATE = auto()  # has a schema with versions


class Durability(StrEnum):
    """What an acknowledged write survives."""

    DURABLE = "durable"  # the loss of power
    RELAXED = "relaxed"  # the death of our processes, perhaps not of the machine
    VOLATILE = "volatile"  # nothing


class Promise(Struct, frozen=True, kw_only=True):
    """A store's durability, and why it is so: said at start-up and to whoever asks."""

    durability: Durability
    why: str


class Wake(StrEnum):
    """A hint: something may be ready to claim, or something new is scheduled."""

    READY = "ready"
    SCHEDULED = "scheduled"


class Promoted(Struct, frozen=True, kw_only=True):
    """How many became ready, and when the next one is due (None: nothing is scheduled)."""

    number: int
    next_at: datetime | None = None


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True, kw_only=True):
    """One line of a store's health report."""

    severity: Severity
    subject: str
    message: str


class Phase(StrEnum):
    """When a step of the schema may be taken, seen from the code that comes with it."""

    BEFORE = "before"  # before that code is deployed: the old code gets along with it
    AFTER = "after"  # only once no old code runs any more


class Migration(Struct, frozen=True, kw_only=True):
    """One numbered step of a store's schema."""

    number: int
    name: str
    applied: bool
    phase: Phase = Phase.BEFORE


class Join(Protocol):
    """A transaction, seen as a place to enqueue and to settle. Nothing stands until it is committed."""

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        """Insert the batch within the transaction; awaitable where its driver is async."""
        ...

    def settle(self, batch: Sequence[Settlement]) -> Sequence[Receipt] | Awaitable[Sequence[Receipt]]:
        """Apply each verdict whose lease still holds, within the transaction; awaitable like `enqueue`.

        A receipt for each, as from the store's own `settle`. Whoever has other writes in the transaction
        rolls back unless it is APPLIED: REPEATED says that the lease was settled by another step than this.
        """
        ...


class Transaction(Protocol):
    """A transaction on a connection of the store's own: `async with` in an event loop, `with` in a thread.

    Entering gives the connection, of a driver that fits the way of entering; `join` takes it. Leaving
    commits, or rolls back if an exception leaves the block. Whoever holds the connection neither commits nor
    rolls back by himself. A commit that fails raises, StoreUnavailable where it is not known whether it
    stands. Entered once; it may be left in another asyncio task than the one that entered it.
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
    """What programs need."""

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Keep all of the batch or none of it.

        An id or an idempotency key that stands already answers with the standing task. Raises
        DuplicateTask for a fingerprint that stands, IdempotencyConflict for a key used for something
        else, NotFound for an unknown predecessor; then nothing of the batch is kept.
        """
        ...

    def join(self, connection: object) -> Join:
        """The caller's own transaction on `connection`; NotSupported if this store cannot join it."""
        ...


class WorkStore(Protocol):
    """What workers need."""

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease ready tasks to a live session, lowest (rank, id) first; paused queues give none.

        Raises SessionLost if the session is not alive.
        """
        ...

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Apply each verdict whose lease still holds and, in the same round trip, claim.

        A lost lease changes nothing. Repeating an applied settlement changes nothing. If the claim's
        session is not alive the settlements are applied all the same and nothing is claimed.
        """
        ...

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Keep a session alive, hand back what it does not know it holds, and tell it the news."""
        ...

    def transaction(self) -> Transaction:
        """A transaction on a connection of the store's own, not begun yet; NotSupported without JOIN.

        How long it may stay open is the store's to bound: past that it is rolled back, and leaving it raises.
        """
        ...

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark the key on the lease's task; whether this lease marked it first, now or in an earlier call.

        So of all leases on a task at most one is told True, and repeating after a lost reply is harmless.
        Marks last as long as the task's record, over replays as well. Raises LeaseLost.
        """
        ...

    def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Hints that a look is worth while: they may come late, twice or for nothing, or get lost."""
        ...


class KeepStore(Protocol):
    """What the keeper needs."""

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """Take or keep the lead for that long; zero gives it up. At most one holder leads.

        A lead that lasts for longer than is asked for here does not count: it was granted before the
        clock was set back. So all who would lead ask for the same term.
        """
        ...

    async def promote(self, limit: int) -> Promoted:
        """Make due tasks ready, earliest first."""
        ...

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Lease to a live session the running tasks of sessions that are not, raising their fences.

        The attempt is not counted again and the task still names the worker that fell silent. In no
        particular order. Sessions that hold nothing any more are forgotten. Raises SessionLost.
        """
        ...

    async def prune(self, retention: Retention, limit: int, by: By | None = None) -> int:
        """Delete up to `limit` ended tasks past their queue's retention (or else this one); counts them.

        Done by a person it is audited before anything is deleted, for it may take several steps.

        All expired keys go as well, however many, in steps that do not hold up others for long.
        A task that another still waits for stays, unless it is dead: then its successors are cancelled.
        """
        ...


class AskStore(Protocol):
    """What people need."""

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """The tasks that match, a page at a time, by id."""
        ...

    async def count(self, where: Filter, by: Sequence[Dimension]) -> Sequence[Count]:
        """How many match, for each combination of values that occurs, in order of the values."""
        ...

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The settled leases that `is_recorded` keeps, oldest first: the newest `MAX_RECORDED`."""
        ...

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Do it to those that match and allow it, oldest first; audited in the same step.

        Answers with the tasks it was done to. Replaying a task whose fingerprint stands again leaves
        it is.
        """
        ...

    async def put(self, record: Record, by: By | None = None) -> None:
        """Keep this record in place of the one of the same kind and name.

        Done by a person it is audited in the same step; what programs declare and keep is done by none.
        """
        ...

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """The records of a kind, by name."""
        ...

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Forget a record; says whether there was one. Audited as `put` is, if there was."""
        ...


class AdminStore(Protocol):
    """What installing and nursing a store needs."""

    async def migrations(self) -> Sequence[Migration]:
        """Every step of the schema that this code or the store knows, in order."""
        ...

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Go up or down to `target` (None: the newest); answers with the steps taken. One at a time."""
        ...

    async def check(self) -> Sequence[Finding]:
        """Look for what a person should know."""
        ...


class Store(EnqueueStore, WorkStore, KeepStore, AskStore, AdminStore, Protocol):
    """All of it."""

    @property
    def capabilities(self) -> Capability:
        """What this store can do beyond the common ground. Certain once it is open."""
        ...

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives here."""
        ...

    async def open(self) -> None:
        """Connect; make the schema where there is none. Opening twice is harmless."""
        ...

    async def close(self) -> None:
        """Let go of everything. Closing twice is harmless."""
        ...

    def another(self) -> "Store":
        """A further handle on the same store, unopened, for another thread and event loop."""
        ...

    async def now(self) -> datetime:
        """The store's clock."""
        ...


async def all_records(store: AskStore, kind: type[R]) -> list[R]:
    """Every record of a kind, by name."""
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
