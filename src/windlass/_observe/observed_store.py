"""ObservedStore: wraps any store and emits an event for every step. The only instrumentation of storage."""

from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .._model.filter import Action, Filter, Page
from .._model.lease import Claim, Claimed
from .._model.state import State
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settled, Settlement
from .._store.forward import ForwardingStore
from .._store.protocol import Join, Store
from ..errors import StoreError, WindlassError
from .events import Event, EventName
from .logs import LogSink
from .sink import Sink, Timer, TimingSink
from .transactions import Noted, ObservedJoin, ObservedTransaction

P = ParamSpec("P")
T = TypeVar("T")

_POSTPONED = {
    Reason.RETRY: EventName.RETRIED,
    Reason.SNOOZE: EventName.SNOOZED,
    Reason.RELEASE: EventName.RELEASED,
}
_ACTED = {"cancel": EventName.CANCELLED, "replay": EventName.REPLAYED, "discard": EventName.DISCARDED}
_MAX_KNOWN = 20_000


class _Known(Struct, frozen=True, gc=False):
    """What a settlement is about: of a claimed task, what its event will tell. No payload is kept alive."""

    type: str
    queue: str
    tenant: str
    attempt: int
    worker: str | None
    trace: str | None


class _Takers(dict[EventName, list[Callable[[Event], None]]]):
    """Who wants events of each name, for the length of one batch."""

    def __init__(self, ask: Callable[[EventName], list[Callable[[Event], None]]]) -> None:
        self._ask = ask

    def __missing__(self, name: EventName) -> list[Callable[[Event], None]]:
        takers = self[name] = self._ask(name)
        return takers


class ObservedStore(ForwardingStore):
    """The store within, seen. What no sink wants costs one look a batch."""

    def __init__(
        self, inner: Store, sinks: Sequence[Sink] | None = None, timers: Sequence[Timer] = ()
    ) -> None:
        super().__init__(inner)
        self._timers = timers
        self._sinks: Sequence[Sink] = (LogSink(),) if sinks is None else sinks
        self._known: dict[TaskId, _Known] = {}  # claimed through here and not settled
        self._noted: dict[int, Noted] = {}  # what is done in transactions that are open, by connection

    def attach(self, sink: TimingSink) -> None:
        """Send every event to this sink too, from now on, and the time that each call of a verb takes."""
        self._sinks = (*self._sinks, sink)
        self._timers = (*self._timers, sink)

    def swap(self, store: Store) -> Store:
        """Observe another store instead; return the one so far."""
        before, self.inner = self.inner, store
        return before

    def another(self) -> "ObservedStore":
        """A further handle, observed by the same sinks."""
        return ObservedStore(self.inner.another(), self._sinks, self._timers)

    def _forward(
        self, verb: str, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        call = method(*args, **kwargs)
        for timer in self._timers:
            call = _timed(call, verb, timer)
        return call

    # -- observed ------------------------------------------------------------------------------------

    async def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Enqueue, and tell of what was created."""
        answers = await self._forward("enqueue", self.inner.enqueue, batch)
        self._enqueued(batch, answers)
        return answers

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Claim, and tell of it."""
        return self._claimed(await self._forward("claim", self.inner.claim, claim), EventName.CLAIMED)

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Settle and claim, and tell of both."""
        if batch:  # a call that only claims is not a batch
            for timer in self._timers:
                timer.batch(len(batch))
        settled = await self._forward("settle", self.inner.settle, batch, claim)
        if self._known or any(map(self._wanted, EventName)):
            self._all_settled(batch, settled.receipts)
        self._claimed(settled.claimed, EventName.CLAIMED)
        return settled

    def transaction(self) -> ObservedTransaction:
        """Tell of what is done in it once it stands; of a lost lease in any case."""
        return ObservedTransaction(self.inner.transaction(), self._noted, self._ended)

    def join(self, connection: object) -> Join:
        """In a transaction of the store's own, take notes. The caller's own commit nobody hears of."""
        joined, noted = self.inner.join(connection), self._noted.get(id(connection))
        return joined if noted is None else ObservedJoin(joined, noted)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Rescue, and tell of it."""
        return self._claimed(await super().rescue(session, limit), EventName.RESCUED)

    async def apply(self, action: Action, where: Filter, limit: int) -> Sequence[TaskId]:
        """Act, and tell of it."""
        name = _ACTED[str(action.__struct_config__.tag)]
        if not self._wanted(name):
            return await super().apply(action, where, limit)
        # What is discarded is gone afterwards, so it is looked at before.
        known = await self._about(where, limit) if name is EventName.DISCARDED else {}
        done = await super().apply(action, where, limit)
        known = known or await self._about(Filter(ids=tuple(done)), len(done))
        for task_id in done:
            task = known.get(task_id)
            if task is not None and task.state is State.RUNNING:
                continue  # it was only asked to stop; its end will be told
            event = Event(name=name, task_id=task_id) if task is None else _of(name, task)
            self._tell(replace(event, by=action.by.who))
        return done

    # -- telling -------------------------------------------------------------------------------------

    def _wanted(self, name: EventName) -> bool:
        return any(sink.wants(name) for sink in self._sinks)

    def _tell(self, event: Event) -> None:
        for take in self._takers(event.name):
            take(event)

    def _takers(self, name: EventName) -> list[Callable[[Event], None]]:
        """Who wants events of this name: asked once a batch, for asking costs more than telling."""
        return [sink.take for sink in self._sinks if sink.wants(name)]

    async def _about(self, where: Filter, limit: int) -> dict[TaskId, Task]:
        """What an event says of these tasks. An act that was done is not undone by not knowing it."""
        if not limit:
            return {}
        try:
            return {task.id: task for task in (await self.find(where, Page(limit=limit))).items}
        except StoreError:
            return {}

    def _claimed(self, claimed: Sequence[Claimed], name: EventName) -> Sequence[Claimed]:
        if claimed and any(map(self._wanted, EventName)):
            self._remember(claimed)
            if takers := self._takers(name):
                for one in claimed:
                    waited = _waited(one.task) if name is EventName.CLAIMED else None
                    event = _of(name, one.task, waited)
                    for take in takers:
                        take(event)
        return claimed

    def _remember(self, claimed: Sequence[Claimed]) -> None:
        known = self._known
        for one in claimed:
            task = one.task
            known[task.id] = _Known(task.type, task.queue, task.tenant, task.attempt, task.worker, task.trace)
        if len(known) > _MAX_KNOWN:  # leases that were lost are never settled through here; the oldest go
            for task_id in [*islice(known, len(known) - _MAX_KNOWN)]:
                del known[task_id]

    def _enqueued(self, batch: Sequence[NewTask], answers: Sequence[Enqueued]) -> None:
        if self._wanted(EventName.ENQUEUED):
            for new, answer in zip(batch, answers, strict=True):
                if answer.created:
                    self._tell(_of(EventName.ENQUEUED, new))

    def _ended(self, noted: Noted, stands: bool) -> None:  # noqa: FBT001  a callback's shape
        """A transaction has been left. What was settled in one that does not stand is not settled."""
        if stands:
            self._enqueued([new for new, _ in noted.enqueued], [answer for _, answer in noted.enqueued])
        takers = _Takers(self._takers)
        for settlement, receipt in noted.settled:
            if stands or receipt is Receipt.LOST:
                self._settled(settlement, receipt, takers)

    def _all_settled(self, batch: Sequence[Settlement], receipts: Sequence[Receipt]) -> None:
        takers = _Takers(self._takers)
        quiet = not takers[EventName.COMPLETED] and not takers[EventName.ENQUEUED]
        for settlement, receipt in zip(batch, receipts, strict=True):
            # Nearly all of a busy worker's tasks complete, and mostly nobody wants to hear of it.
            if quiet and receipt is Receipt.APPLIED and type(settlement.verdict) is Complete:
                self._known.pop(settlement.lease.task_id, None)
            else:
                self._settled(settlement, receipt, takers)

    def _settled(self, settlement: Settlement, receipt: Receipt, takers: "_Takers") -> None:
        task = self._known.pop(settlement.lease.task_id, None)
        if receipt is Receipt.APPLIED and isinstance(settlement.verdict, Complete):
            for new in settlement.verdict.successors:
                self._tell(_of(EventName.ENQUEUED, new))
        name, delay = _told_of(settlement)
        name = EventName.LOST if receipt is Receipt.LOST else name
        if receipt is Receipt.REPEATED or not takers[name]:
            return
        verdict = settlement.verdict
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
            delay=delay,
            error=None if isinstance(verdict, Complete) else verdict.error,
        )
        for take in takers[name]:
            take(event)


async def _timed(call: Coroutine[Any, Any, T], verb: str, timer: Timer) -> T:
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
    """From when it was due to its claim. What waited for others was due when nobody knows."""
    if task.claimed_at is None or (task.after and task.fence == 1):
        return None
    return max((task.claimed_at - task.due_at).total_seconds(), 0.0)


def _of(name: EventName, task: Task | NewTask, waited: float | None = None) -> Event:
    moving = task if isinstance(task, Task) else None
    return Event(
        name=name,
        task_id=task.id,
        type=task.type,
        queue=task.queue,
        tenant=task.tenant,
        attempt=moving.attempt if moving else 0,
        fence=moving.fence if moving else 0,
        worker=moving.worker if moving else None,
        trace=task.trace,
        waited=waited,
    )


def _told_of(settlement: Settlement) -> tuple[EventName, float | None]:
    match settlement.verdict:
        case Complete():
            return EventName.COMPLETED, None
        case Postpone(reason=reason, delay=delay):
            return _POSTPONED[reason], delay.total_seconds()
        case Bury():
            return EventName.BURIED, None
        case Cancel():
            return EventName.CANCELLED, None
