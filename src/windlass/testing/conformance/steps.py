"""Helpers of the scenarios: new tasks, a manual worker, settlements, and a dump of the whole store."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from ..._ids import new_id
from ..._model.attempt import Attempt
from ..._model.filter import Action, By, CancelTasks, Count, Dimension, Discard, Filter, Page, Replay, Slice
from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease, ProgressReport
from ..._model.queue import QueueSettings
from ..._model.record import Audit, Record, Session, Worker
from ..._model.state import State
from ..._model.task import DEFAULT_QUEUE, Error, NewTask, Task, TaskId
from ..._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settled, Settlement, Verdict
from ..._store.protocol import Store
from ..clock import ManualClock

E = TypeVar("E", bound=Exception)
R = TypeVar("R", bound=Record)
T = TypeVar("T")

LEASE = timedelta(seconds=30)
NO_DELAY = timedelta(0)
BOOM = Error(type="ValueError", message="boom")
OPERATOR = By(who="ada", why="a test")
EVERYTHING = Filter()

FIELDS: dict[str, Any] = {
    "type": "reports.weekly",
    "payload": b'{"n": 1,"s":"\\u00e9"}',
    "queue": "reports",
    "tenant": "acme",
    "priority": -3,
    "max_attempts": 3,
    "timeout": timedelta(seconds=1.5),
    "idempotency_key": "key",
    "idempotency_digest": "digest",
    "idempotency_for": timedelta(days=30),
    "fingerprint": "print",
    "unique_for": timedelta(days=3),
    "next": b'[{"id":"00000000-0000-7000-8000-000000000009","type":"x", "payload":{}}]',
    "result_into": "results",
    "secret": ("password", "token"),
    "trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "enqueued_by": "web",
    "expires_at": datetime(2030, 1, 1, microsecond=7, tzinfo=UTC),
}
"""An unusual value of every field of a new task that needs no other task and no clock."""


def a_task(**changes: Any) -> NewTask:
    """Return a valid task with a new id; `changes` are fields of NewTask."""
    task_id = changes.pop("id", None) or new_id()
    fields = {"id": task_id, "root": task_id, "type": "mail.send", "payload": b'{"to":"ada"}'}
    return NewTask(**{**fields, **changes})


def some_tasks(number: int, **changes: Any) -> list[NewTask]:
    """Return equal tasks with ascending ids."""
    return [a_task(**changes) for _ in range(number)]


async def enqueue_one(store: Store, **changes: Any) -> TaskId:
    """Enqueue one task and return its id."""
    new = a_task(**changes)
    await store.enqueue([new])
    return new.id


async def load(store: Store, task_id: TaskId) -> Task:
    """Return the task as stored."""
    found = await store.find(Filter(ids=(task_id,)), Page())
    assert [task.id for task in found.items] == [task_id], f"there is no task {task_id}"
    return found.items[0]


async def exists(store: Store, task_id: TaskId) -> bool:
    """Whether the store has such a task."""
    return bool((await store.find(Filter(ids=(task_id,)), Page())).items)


async def state_of(store: Store, task_id: TaskId) -> State:
    """The task's state."""
    return (await load(store, task_id)).state


class ManualWorker:
    """A worker that the test drives. It numbers its claims and sends nothing by itself."""

    def __init__(self, store: Store, name: str = "worker") -> None:
        self.store = store
        self.name = name
        self.session = new_id()
        self.claims = 0

    async def beat(self, *held: Lease, lease_for: timedelta = LEASE, **changes: Any) -> HeartbeatReply:
        """Send a heartbeat; `changes` are fields of Heartbeat."""
        worker = Worker(name=self.name, host="host", pid=7, queues=(DEFAULT_QUEUE,), slots=4, version="1")
        fields = {"session": self.session, "worker": worker, "lease_for": lease_for, "held": held}
        return await self.store.heartbeat(Heartbeat(**{**fields, **changes}))

    async def report(self, *reports: ProgressReport, held: Sequence[Lease] = ()) -> HeartbeatReply:
        """Send a heartbeat with progress reports."""
        return await self.beat(*held, progress=reports)

    def next_claim(self, limit: int = 1, *queues: str, types: Sequence[str] | None = None) -> Claim:
        """Return the next claim, numbered but not sent."""
        self.claims += 1
        return Claim(
            session=self.session,
            queues=queues or (DEFAULT_QUEUE,),
            limit=limit,
            number=self.claims,
            types=None if types is None else tuple(types),
        )

    async def claim(
        self, limit: int = 1, *queues: str, types: Sequence[str] | None = None
    ) -> Sequence[Claimed]:
        """Claim up to `limit` tasks, only of these types if any are given."""
        return await self.store.claim(self.next_claim(limit, *queues, types=types))

    async def claim_one(self, *queues: str) -> Claimed:
        """Claim one task, which must be ready."""
        claimed = await self.claim(1, *queues)
        assert len(claimed) == 1, "nothing was ready to claim"
        return claimed[0]

    async def claim_ids(
        self, limit: int = 1, *queues: str, types: Sequence[str] | None = None
    ) -> list[TaskId]:
        """Claim as `claim` does; return the ids, in order."""
        return [claimed.task.id for claimed in await self.claim(limit, *queues, types=types)]

    async def rescue(self, limit: int = 10) -> Sequence[Claimed]:
        """Take over tasks of expired sessions."""
        return await self.store.rescue(self.session, limit)


async def worker_on(store: Store, name: str = "worker", lease_for: timedelta = LEASE) -> ManualWorker:
    """Return a worker with an open session."""
    worker = ManualWorker(store, name)
    reply = await worker.beat(lease_for=lease_for, opening=True)
    assert reply.alive
    return worker


async def enqueue_and_claim(store: Store, worker: ManualWorker, **changes: Any) -> Claimed:
    """Enqueue one task in a queue of its own and claim it."""
    queue = changes.pop("queue", new_id())
    task_id = await enqueue_one(store, queue=queue, **changes)
    claimed = await worker.claim_one(queue)
    assert claimed.task.id == task_id
    return claimed


def settlement(of: Claimed | Lease, verdict: Verdict, outcome: str = "returned") -> Settlement:
    """The lease and the verdict that ends it."""
    lease = of.lease if isinstance(of, Claimed) else of
    return Settlement(lease=lease, verdict=verdict, outcome=outcome, duration=0.25)


def complete(of: Claimed | Lease, result: bytes | None = None, *successors: NewTask) -> Settlement:
    """The handler returned."""
    return settlement(of, Complete(result=result, successors=successors))


def retry(of: Claimed | Lease, delay: timedelta = NO_DELAY, error: Error = BOOM) -> Settlement:
    """The handler failed; retry."""
    return settlement(of, Postpone(delay=delay, reason=Reason.RETRY, error=error), "failed")


def snooze(of: Claimed | Lease, delay: timedelta = NO_DELAY) -> Settlement:
    """The handler requested to run again later."""
    return settlement(of, Postpone(delay=delay, reason=Reason.SNOOZE), "snoozed")


def release(of: Claimed | Lease) -> Settlement:
    """The worker releases the task."""
    return settlement(of, Postpone(delay=NO_DELAY, reason=Reason.RELEASE), "interrupted")


def bury(of: Claimed | Lease, error: Error = BOOM, *successors: NewTask) -> Settlement:
    """The handler failed; do not retry."""
    return settlement(of, Bury(error=error, successors=successors), "failed")


def stop(of: Claimed | Lease) -> Settlement:
    """The handler stopped on request."""
    return settlement(of, Cancel(), "stopped")


Ending = Callable[[Claimed | Lease], Settlement]

ENDINGS: dict[str, Ending] = {
    "complete": complete,
    "retry": retry,
    "snooze": snooze,
    "release": release,
    "bury": bury,
    "cancel": stop,
}
"""Every kind of settlement, by verdict and reason."""


async def settle(store: Store, *batch: Settlement) -> tuple[Receipt, ...]:
    """Settle without claiming; return the receipts."""
    settled: Settled = await store.settle(batch)
    assert settled.claimed == ()
    return settled.receipts


async def settle_now(store: Store, *batch: Settlement) -> None:
    """Settle, and assert that every settlement is applied."""
    assert set(await settle(store, *batch)) <= {Receipt.APPLIED}


async def enqueue_and_settle(store: Store, worker: ManualWorker, ending: Ending, **changes: Any) -> Claimed:
    """Enqueue one task, claim it and settle it; return it as it was claimed."""
    claimed = await enqueue_and_claim(store, worker, **changes)
    await settle_now(store, ending(claimed))
    return claimed


async def take_over(store: Store, clock: ManualClock, stalled: Claimed) -> tuple[ManualWorker, Claimed]:
    """Let the stalled worker's lease expire and another worker take the task over."""
    clock.advance(LEASE)
    rescuer = await worker_on(store, "rescuer")
    (rescued,) = await rescuer.rescue()
    assert rescued.task.id == stalled.task.id
    return rescuer, rescued


async def act(store: Store, action: Action, *ids: TaskId) -> Sequence[TaskId]:
    """Apply an action to these tasks; return the ids of those changed."""
    return (await store.apply(action, Filter(ids=ids), limit=1000)).ids


async def cancel(store: Store, *ids: TaskId) -> Sequence[TaskId]:
    """Cancel tasks as an operator."""
    return await act(store, CancelTasks(by=OPERATOR), *ids)


async def replay(
    store: Store, *ids: TaskId, payload: bytes | None = None, fingerprint: str | None = None
) -> Sequence[TaskId]:
    """Replay tasks as an operator."""
    return await act(store, Replay(by=OPERATOR, payload=payload, fingerprint=fingerprint), *ids)


async def discard(store: Store, *ids: TaskId) -> Sequence[TaskId]:
    """Discard tasks as an operator."""
    return await act(store, Discard(by=OPERATOR), *ids)


async def all_pages(
    read: Callable[[Page], Awaitable[Slice[T]]], *, limit: int = 1000, newest_first: bool = False
) -> list[Sequence[T]]:
    """Return the items of every page."""
    page = Page(limit=limit, newest_first=newest_first)
    parts = [await read(page)]
    while (cursor := parts[-1].cursor) is not None:
        parts.append(await read(replace(page, cursor=cursor)))
    return [part.items for part in parts]


async def all_tasks(store: Store, where: Filter = EVERYTHING, *, limit: int = 1000) -> list[Task]:
    """Return every matching task, oldest first, page by page."""
    return [task for part in await all_pages(partial(store.find, where), limit=limit) for task in part]


async def all_records(store: Store, kind: type[R]) -> tuple[R, ...]:
    """Return every record of a kind, by name."""
    return tuple(record for part in await all_pages(partial(store.records, kind)) for record in part)


class Dump(Struct, frozen=True, kw_only=True):
    """Everything visible in a store at one moment."""

    tasks: tuple[Task, ...]
    attempts: tuple[Attempt, ...]
    counts: tuple[Count, ...]
    sizes: tuple[Count, ...]
    queues: tuple[QueueSettings, ...]
    sessions: tuple[Session, ...]
    audits: tuple[Audit, ...]


async def dump(store: Store, skip: Collection[Task] = ()) -> Dump:
    """Read everything except the attempts of tasks in `skip`. Nothing may change meanwhile."""
    found = await all_tasks(store)
    lines = [line for task in found if task not in skip for line in await store.attempts(task.id)]
    return Dump(
        tasks=tuple(found),
        attempts=tuple(lines),
        counts=tuple(await store.count(EVERYTHING, tuple(Dimension))),
        sizes=tuple(await store.count(EVERYTHING, (Dimension.TENANT,), sized=True)),
        queues=await all_records(store, QueueSettings),
        sessions=await all_records(store, Session),
        audits=await all_records(store, Audit),
    )


class StoreTest:
    """Base of the test classes: the store and the clock of a test, and the steps on that store."""

    @pytest.fixture(autouse=True)
    def _given(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.act = partial(act, store)
        self.all_records = partial(all_records, store)
        self.all_tasks = partial(all_tasks, store)
        self.cancel = partial(cancel, store)
        self.discard = partial(discard, store)
        self.dump = partial(dump, store)
        self.enqueue_and_claim = partial(enqueue_and_claim, store)
        self.enqueue_and_settle = partial(enqueue_and_settle, store)
        self.enqueue_one = partial(enqueue_one, store)
        self.exists = partial(exists, store)
        self.load = partial(load, store)
        self.new_worker = partial(worker_on, store)
        self.replay = partial(replay, store)
        self.settle = partial(settle, store)
        self.settle_now = partial(settle_now, store)
        self.state_of = partial(state_of, store)
        self.take_over = partial(take_over, store, clock)

    @pytest.fixture
    async def worker(self, store: Store) -> ManualWorker:
        """A worker with an open session."""
        return await worker_on(store)

    @pytest.fixture
    async def held(self, store: Store, worker: ManualWorker) -> Claimed:
        """A task that `worker` has claimed."""
        return await enqueue_and_claim(store, worker)

    @pytest.fixture
    async def other(self, store: Store) -> AsyncIterator[Store]:
        """Another open handle of the store."""
        other = store.another()
        await other.open()
        yield other
        await other.close()

    async def settled(self, by: Settlement) -> Task:
        """Settle a task; return it as stored then."""
        await self.settle_now(by)
        return await self.load(by.lease.task_id)

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Assert that the block changes nothing visible in the store."""
        before = await self.dump()
        yield
        assert await self.dump() == before

    @asynccontextmanager
    async def refused(self, error: type[E]) -> AsyncIterator[pytest.ExceptionInfo[E]]:
        """Assert that the block raises this error and changes nothing."""
        async with self.unchanged():
            with pytest.raises(error) as refusal:
                yield refusal
