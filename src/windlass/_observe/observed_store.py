"""ObservedStore: wraps a store, emits an event for every step of a task and times every verb."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .._model.filter import Action, Filter, Page
from .._model.lease import Claim, Claimed
from .._model.state import State
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settled, Settlement
from .._store.forward import ForwardingStore
from .._store.protocol import Join, Store, Transaction
from ..errors import StoreError, WindlassError
from .events import Event, EventName, Sink, TimingSink
from .logs import LogSink

P = ParamSpec("P")
T = TypeVar("T")

_POSTPONED = {
    Reason.RETRY: EventName.RETRIED,
    Reason.SNOOZE: EventName.SNOOZED,
    Reason.RELEASE: EventName.RELEASED,
}
_ENDED = {Complete: EventName.COMPLETED, Bury: EventName.BURIED, Cancel: EventName.CANCELLED}
_ACTIONS = {"cancel": EventName.CANCELLED, "replay": EventName.REPLAYED, "discard": EventName.DISCARDED}
_MAX_CLAIMED = 20_000
_SMALL = 500  # bytes of a payload that may stay in memory until its task is settled


class _Receivers(dict[EventName, list[Callable[[Event], None]]]):
    """The receivers of each event, looked up once per batch: `wants` costs more than `take`."""

    def __init__(self, find: Callable[[EventName], list[Callable[[Event], None]]]) -> None:
        self._find = find

    def __missing__(self, name: EventName) -> list[Callable[[Event], None]]:
        receivers = self[name] = self._find(name)
        return receivers


class Writes(Struct):
    """What was done in one transaction, in order."""

    enqueued: list[tuple[NewTask, Enqueued]] = []
    settled: list[tuple[Settlement, Receipt]] = []


class ObservedStore(ForwardingStore):
    """A store whose steps are observed by sinks. An event that no sink wants costs one check per batch."""

    def __init__(
        self, inner: Store, sinks: Sequence[Sink] | None = None, timers: Sequence[TimingSink] = ()
    ) -> None:
        super().__init__(inner)
        self._timers = timers
        self._sinks: Sequence[Sink] = (LogSink(),) if sinks is None else sinks
        self._claimed_tasks: dict[TaskId, Task] = {}  # claimed through this handle, not settled yet
        self._open_writes: dict[int, Writes] = {}  # of open transactions, by the id of their connection

    def attach(self, sink: TimingSink) -> None:
        """Send every event to this sink too, from now on, and the time that each call of a verb takes."""
        self._sinks = (*self._sinks, sink)
        self._timers = (*self._timers, sink)

    def swap(self, store: Store) -> Store:
        """Observe another store instead; return the one so far."""
        before, self.inner = self.inner, store
        return before

    def another(self) -> "ObservedStore":
        return ObservedStore(self.inner.another(), self._sinks, self._timers)

    def _forward(
        self, verb: str, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        call = method(*args, **kwargs)
        for timer in self._timers:
            call = _timed(call, verb, timer)
        return call

    # -- observed verbs ------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        results = await self._forward("enqueue", self.inner.enqueue, batch)
        self._emit_enqueued(zip(batch, results, strict=True))
        return results

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        return self._emit_claimed(await self._forward("claim", self.inner.claim, claim), EventName.CLAIMED)

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        if batch:  # a call that only claims is not a batch
            for timer in self._timers:
                timer.batch(len(batch))
        settled = await self._forward("settle", self.inner.settle, batch, claim)
        if self._claimed_tasks or any(map(self._wanted, EventName)):
            self._emit_settled(batch, settled.receipts)
        self._emit_claimed(settled.claimed, EventName.CLAIMED)
        return settled

    def transaction(self) -> Transaction:
        """Return a transaction whose events are emitted once it has committed; lost leases, in any case."""
        return ObservedTransaction(self.inner.transaction(), self._open_writes, self._transaction_ended)

    def join(self, connection: object) -> Join:
        """Observe a join to the store's own transaction; the commits of others are not known here."""
        joined, writes = self.inner.join(connection), self._open_writes.get(id(connection))
        return joined if writes is None else ObservedJoin(joined, writes)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        return self._emit_claimed(await super().rescue(session, limit), EventName.RESCUED)

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        name = _ACTIONS[str(action.__struct_config__.tag)]
        if not self._wanted(name):
            return await super().apply(action, where, limit)
        # Discarded tasks cannot be read afterwards.
        known = await self._find_tasks(where, limit) if name is EventName.DISCARDED else {}
        done = await super().apply(action, where, limit)
        known = known or await self._find_tasks(Filter(ids=tuple(done)), len(done))
        for task_id in done:
            task = known.get(task_id)
            if task is not None and task.state is State.RUNNING:
                continue  # it was only asked to stop; its settlement will be an event
            event = Event(name=name, task_id=task_id) if task is None else _event_of(name, task)
            _emit(replace(event, by=action.by.who), self._receivers(name))
        return done

    # -- events --------------------------------------------------------------------------------------

    def _wanted(self, name: EventName) -> bool:
        return any(sink.wants(name) for sink in self._sinks)

    def _receivers(self, name: EventName) -> list[Callable[[Event], None]]:
        return [sink.take for sink in self._sinks if sink.wants(name)]

    async def _find_tasks(self, where: Filter, limit: int) -> dict[TaskId, Task]:
        """Find tasks for events. A failure only makes the events poorer: the action itself was done."""
        if not limit:
            return {}
        try:
            return {task.id: task for task in (await self.find(where, Page(limit=limit))).items}
        except StoreError:
            return {}

    def _emit_claimed(self, claimed: Sequence[Claimed], name: EventName) -> Sequence[Claimed]:
        if claimed and any(map(self._wanted, EventName)):
            self._remember(claimed)
            if receivers := self._receivers(name):
                for one in claimed:
                    waited = _waited(one.task) if name is EventName.CLAIMED else None
                    event = _event_of(name, one.task, waited)
                    for take in receivers:
                        take(event)
        return claimed

    def _remember(self, claimed: Sequence[Claimed]) -> None:
        known = self._claimed_tasks
        for one in claimed:
            task = one.task
            # Copying costs time, and few tasks hold much: long payloads, chains, the errors of retries.
            is_small = len(task.payload) <= _SMALL and task.next is None and task.error is None
            known[task.id] = task if is_small else replace(task, payload=b"", next=None, error=None)
        if len(known) > _MAX_CLAIMED:  # lost leases are never settled here; drop the oldest
            for task_id in [*islice(known, len(known) - _MAX_CLAIMED)]:
                del known[task_id]

    def _emit_enqueued(self, enqueued: Iterable[tuple[NewTask, Enqueued]]) -> None:
        if receivers := self._receivers(EventName.ENQUEUED):
            for new, result in enqueued:
                if result.created:
                    _emit(_event_of(EventName.ENQUEUED, new), receivers)

    def _transaction_ended(self, writes: Writes, committed: bool) -> None:  # noqa: FBT001  a callback
        """Emit the events of a transaction; of one rolled back only those of lost leases."""
        if committed:
            self._emit_enqueued(writes.enqueued)
        receivers = _Receivers(self._receivers)
        for settlement, receipt in writes.settled:
            if committed or receipt is Receipt.LOST:
                self._emit_settlement(settlement, receipt, receivers)

    def _emit_settled(self, batch: Sequence[Settlement], receipts: Sequence[Receipt]) -> None:
        receivers = _Receivers(self._receivers)
        quiet = not receivers[EventName.COMPLETED] and not receivers[EventName.ENQUEUED]
        applied, forget = Receipt.APPLIED, self._claimed_tasks.pop
        for settlement, receipt in zip(batch, receipts, strict=True):
            # The common case of a busy worker: a task completed, and no sink wants that.
            if quiet and receipt is applied and type(settlement.verdict) is Complete:
                forget(settlement.lease.task_id, None)
            else:
                self._emit_settlement(settlement, receipt, receivers)

    def _emit_settlement(self, settlement: Settlement, receipt: Receipt, receivers: _Receivers) -> None:
        task = self._claimed_tasks.pop(settlement.lease.task_id, None)
        if receipt is Receipt.APPLIED and isinstance(settlement.verdict, Complete):
            for new in settlement.verdict.successors:
                _emit(_event_of(EventName.ENQUEUED, new), receivers[EventName.ENQUEUED])
        verdict = settlement.verdict
        name = EventName.LOST
        if receipt is not Receipt.LOST:
            name = _POSTPONED[verdict.reason] if isinstance(verdict, Postpone) else _ENDED[type(verdict)]
        if receipt is Receipt.REPEATED or not receivers[name]:
            return
        event = Event(
            name=name,
            task_id=settlement.lease.task_id,
            fence=settlement.lease.fence,
            type=task.type if task else "",
            queue=task.queue if task else "",
            tenant=task.tenant if task else "",
            attempt=task.attempt if task else 0,
            worker=task.worker if task else None,
            trace=task.trace if task else None,
            duration=settlement.duration,
            delay=verdict.delay.total_seconds() if isinstance(verdict, Postpone) else None,
            error=None if isinstance(verdict, Complete) else verdict.error,
        )
        for take in receivers[name]:
            take(event)


def _emit(event: Event, receivers: Iterable[Callable[[Event], None]]) -> None:
    for take in receivers:
        take(event)


async def _timed(call: Coroutine[Any, Any, T], verb: str, timer: TimingSink) -> T:
    began = perf_counter()
    try:
        return await call
    except Exception as error:
        if isinstance(error, StoreError) or not isinstance(error, WindlassError):
            timer.failed(verb, getattr(error, "code", "unexpected"))
        raise
    finally:
        timer.took(verb, perf_counter() - began)


def _waited(task: Task) -> float | None:
    """Return the seconds from due to claimed; None if the task waited for others."""
    if task.claimed_at is None or (task.after and task.fence == 1):
        return None
    return max((task.claimed_at - task.due_at).total_seconds(), 0.0)


def _event_of(name: EventName, task: Task | NewTask, waited: float | None = None) -> Event:
    stored = task if isinstance(task, Task) else None
    return Event(
        name=name,
        task_id=task.id,
        type=task.type,
        queue=task.queue,
        tenant=task.tenant,
        attempt=stored.attempt if stored else 0,
        fence=stored.fence if stored else 0,
        worker=stored.worker if stored else None,
        trace=task.trace,
        waited=waited,
    )


class ObservedTransaction(Struct):
    """Records its writes by the connection's id; calls `ended` with them and whether they were committed."""

    _inner: Transaction
    _open_writes: MutableMapping[int, Writes]
    _ended: Callable[[Writes, bool], None]
    _id: int = 0

    async def __aenter__(self) -> Any:  # the driver's own type
        return self._entered(await self._inner.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._leaving(kind):
            await self._inner.__aexit__(kind, error, trace)

    def __enter__(self) -> Any:  # the driver's own type
        return self._entered(self._inner.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._leaving(kind):
            self._inner.__exit__(kind, error, trace)

    def _entered(self, connection: Any) -> Any:  # the driver's own type
        self._id = id(connection)
        self._open_writes[self._id] = Writes()
        return connection

    @contextmanager
    def _leaving(self, kind: type[BaseException] | None) -> Iterator[None]:
        committed = False
        try:
            yield
            committed = kind is None
        finally:
            self._ended(self._open_writes.pop(self._id), committed)


class ObservedJoin(Struct):
    """A join that records its writes."""

    _inner: Join
    _writes: Writes

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        return _then(
            self._inner.enqueue(batch),
            lambda results: self._writes.enqueued.extend(zip(batch, results, strict=True)),
        )

    def settle(self, batch: Sequence[Settlement]) -> Sequence[Receipt] | Awaitable[Sequence[Receipt]]:
        return _then(
            self._inner.settle(batch),
            lambda receipts: self._writes.settled.extend(zip(batch, receipts, strict=True)),
        )


def _then(result: T | Awaitable[T], record: Callable[[T], None]) -> T | Awaitable[T]:
    """Record a result now, or once it has been awaited."""
    if isinstance(result, Awaitable):
        return _awaited(result, record)
    record(result)
    return result


async def _awaited(result: Awaitable[T], record: Callable[[T], None]) -> T:
    value = await result
    record(value)
    return value
