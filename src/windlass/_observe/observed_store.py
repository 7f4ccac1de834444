"""ObservedStore: wraps a store, emits an event for every transition of a task and times every verb."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from .._model.filter import Action, By, Expire, Filter
from .._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply
from .._model.queue import Retention
from .._model.state import Verb
from .._model.task import EXPIRED, Enqueued, Error, NewTask, Task, TaskId
from .._model.transition import Applied, Pruned, TaskTransition
from .._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settled, Settlement
from .._store.forward import ForwardingStore
from .._store.messages import RemoteStore
from .._store.protocol import Join, Promoted, Store, Transaction
from ..errors import StoreError, WindlassError
from .events import (
    Event,
    EventName,
    Sink,
    TimingSink,
    enqueued_event,
    event_of,
    transition_event,
    waited_seconds,
)
from .history import HistoryRecorder
from .logs import LogSink
from .observed_transaction import ObservedJoin, ObservedTransaction, Writes

P = ParamSpec("P")
T = TypeVar("T")

_POSTPONED = {
    Reason.RETRY: EventName.RETRIED,
    Reason.SNOOZE: EventName.SNOOZED,
    Reason.RELEASE: EventName.RELEASED,
}
_ENDED = {Complete: EventName.COMPLETED, Bury: EventName.BURIED, Cancel: EventName.CANCELLED}
_STEPS = {
    Verb.UNBLOCK: EventName.UNBLOCKED,
    Verb.POSTPONE: EventName.RELEASED,
    Verb.CANCEL: EventName.CANCELLED,
    Verb.REPLAY: EventName.REPLAYED,
    Verb.DISCARD: EventName.DISCARDED,
}
_COMPLETE = {Complete}
_NOTHING_RAN: Mapping[TaskId, float] = {}
_MAX_CLAIMED = 20_000
_SMALL = 500  # bytes of a payload that may stay in memory until its task is settled


class _Receivers(dict[EventName, list[Callable[[Event], None]]]):
    """The receivers of each event, looked up once per batch: `wants` costs more than `take`."""

    def __init__(self, find: Callable[[EventName], list[Callable[[Event], None]]]) -> None:
        self._find = find

    def __missing__(self, name: EventName) -> list[Callable[[Event], None]]:
        receivers = self[name] = self._find(name)
        return receivers


class ObservedStore(ForwardingStore):
    """A store whose verbs are observed by sinks. An event that no sink wants costs one check per batch."""

    def __init__(
        self,
        inner: Store,
        sinks: Sequence[Sink] | None = None,
        timers: Sequence[TimingSink] = (),
        history: HistoryRecorder | None = None,
    ) -> None:
        super().__init__(inner)
        self.history = history or self._new_history()
        self._flushes: set[asyncio.Task[None]] = set()
        self._timers = timers
        self._sinks: Sequence[Sink] = (LogSink(),) if sinks is None else sinks
        self._claimed_tasks: dict[TaskId, Task] = {}  # claimed through this handle, not settled yet
        self._open_writes: dict[int, Writes] = {}  # of open transactions, by the id of their connection

    def attach(self, sink: TimingSink) -> None:
        """Send every event to this sink too, from now on, and the time that each call of a verb takes."""
        self.listen(sink)
        self._timers = (*self._timers, sink)

    def listen(self, sink: Sink) -> None:
        """Send every event to this sink too, from now on."""
        self._sinks = (*self._sinks, sink)

    def emit(self, event: Event) -> None:
        """Send the sinks an event that no verb makes. Safe to call from any thread."""
        _emit(event, self._receivers(event.name))

    def swap(self, store: Store) -> Store:
        """Observe another store instead; return the one so far."""
        before, self.inner = self.inner, store
        self.history = self._new_history()
        return before

    def another(self) -> "ObservedStore":
        return ObservedStore(self.inner.another(), self._sinks, self._timers, self.history)

    async def close(self) -> None:
        if self.history is not None:
            await self.history.close()
        await super().close()

    def _new_history(self) -> HistoryRecorder | None:
        """Return a recorder, unless the store is a server's: that counts what is settled through it."""
        store = self.inner
        while isinstance(store, ForwardingStore):
            store = store.inner
        return None if isinstance(store, RemoteStore) else HistoryRecorder(lambda: self.inner)

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
        if self.history or self._claimed_tasks or any(map(self._wanted, EventName)):
            self._emit_settled(batch, settled)
            self._flush_history()
        self._emit_claimed(settled.claimed, EventName.CLAIMED)
        return settled

    def transaction(self) -> Transaction:
        """Return a transaction whose events are emitted once it has committed; lost leases, in any case."""
        return ObservedTransaction(self.inner.transaction(), self._open_writes, self._transaction_ended)

    def join(self, connection: object) -> Join:
        """Observe a join. Events of the store's own transactions are emitted once it has committed.

        When the caller commits its own transaction is not known here, so these events are emitted at once and
        say that they `joined` it: if it is rolled back, what they tell never happened.
        """
        joined, writes = self.inner.join(connection), self._open_writes.get(id(connection))
        return ObservedJoin(joined, self._emit_joined if writes is None else writes.add)

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        return self._emit_claimed(await super().rescue(session, limit), EventName.RESCUED)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        reply = await self._forward("heartbeat", self.inner.heartbeat, beat)
        self._emit_transitions(reply.transitions)
        return reply

    async def promote(self, limit: int) -> Promoted:
        promoted = await super().promote(limit)
        if promoted.number:
            event = Event(name=EventName.PROMOTED, number=promoted.number)
            _emit(event, self._receivers(EventName.PROMOTED))
        return promoted

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        pruned = await super().prune(default, limit, by)
        who = None if by is None else by.who
        for count in pruned.counts:
            event = Event(
                name=EventName.PRUNED, queue=count.queue, state=count.state, number=count.number, by=who
            )
            _emit(event, self._receivers(EventName.PRUNED))
        self._emit_transitions(pruned.transitions, by=who)
        return pruned

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        applied = await super().apply(action, where, limit)
        self._emit_transitions(applied.transitions, by=None if isinstance(action, Expire) else action.by.who)
        self._flush_history()
        return applied

    def _flush_history(self) -> None:
        """Store what was counted if nothing else here does: in a process that mounts the API, or cancels."""
        if self.history and self.history.ask_for_flush():
            flush = asyncio.ensure_future(self.history.flush())
            self._flushes.add(flush)
            flush.add_done_callback(self._flushes.discard)

    # -- events --------------------------------------------------------------------------------------

    def _wanted(self, name: EventName) -> bool:
        return any(sink.wants(name) for sink in self._sinks)

    def _receivers(self, name: EventName) -> list[Callable[[Event], None]]:
        return [sink.take for sink in self._sinks if sink.wants(name)]

    def _emit_claimed(self, claimed: Sequence[Claimed], name: EventName) -> Sequence[Claimed]:
        if claimed and (self.history or any(map(self._wanted, EventName))):
            self._remember(claimed)
            if receivers := self._receivers(name):
                for one in claimed:
                    waited = waited_seconds(one.task) if name is EventName.CLAIMED else None
                    event = event_of(name, one.task, waited)
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

    def _emit_enqueued(self, enqueued: Iterable[tuple[NewTask, Enqueued]], *, joined: bool = False) -> None:
        created, cancelled = self._receivers(EventName.ENQUEUED), self._receivers(EventName.CANCELLED)
        for new, result in enqueued:
            if created and result.created:
                _emit(enqueued_event(new, joined=joined), created)
            if result.cancelled is not None:
                error = Error(type="Cancelled", message=result.cancelled)
                _emit(replace(event_of(EventName.CANCELLED, new), error=error, joined=joined), cancelled)

    def _emit_transitions(
        self,
        transitions: Sequence[TaskTransition],
        by: str | None = None,
        *,
        ran: Mapping[TaskId, float] = _NOTHING_RAN,
        joined: bool = False,
    ) -> None:
        """Emit an event for each transition; `ran` has the durations of tasks that were running before."""
        receivers = _Receivers(self._receivers)
        for transition in transitions:
            name = EventName.EXPIRED if _is_expiry(transition) else _STEPS[transition.verb]
            if self.history and transition.verb is Verb.CANCEL:
                self.history.cancelled(transition, expired=name is EventName.EXPIRED)
            if receivers[name]:
                event = transition_event(name, transition, by, joined=joined)
                _emit(replace(event, duration=ran.get(transition.task_id)) if ran else event, receivers[name])

    def _emit_joined(self, writes: Writes) -> None:
        self._emit_enqueued(writes.enqueued, joined=True)
        self._emit_settlements(writes.settled, writes.transitions, joined=True)

    def _transaction_ended(self, writes: Writes, committed: bool) -> None:  # noqa: FBT001  a callback
        """Emit the events of a transaction; of one rolled back only those of lost leases."""
        if committed:
            self._emit_enqueued(writes.enqueued)
            self._emit_settlements(writes.settled, writes.transitions)
        else:
            lost = [one for one in writes.settled if one[1] is Receipt.LOST]
            self._emit_settlements(lost, ())

    def _emit_settled(self, batch: Sequence[Settlement], settled: Settled) -> None:
        if not self._emit_completed(batch, settled):
            self._emit_settlements(zip(batch, settled.receipts, strict=True), settled.transitions)

    def _emit_completed(self, batch: Sequence[Settlement], settled: Settled) -> bool:
        """Do the common case of a busy worker as a whole: all have completed, and no sink wants that.

        Returns whether this was the case.
        """
        if (
            settled.transitions
            or settled.receipts.count(Receipt.APPLIED) < len(batch)
            or {type(one.verdict) for one in batch} != _COMPLETE
            or self._wanted(EventName.COMPLETED)
            or self._wanted(EventName.ENQUEUED)
        ):
            return False
        forget = self._claimed_tasks.pop
        tasks = [forget(one.lease.task_id, None) for one in batch]
        if self.history:
            self.history.completed(batch, tasks)
        return True

    def _emit_settlements(
        self,
        settlements: Iterable[tuple[Settlement, Receipt]],
        transitions: Sequence[TaskTransition],
        *,
        joined: bool = False,
    ) -> None:
        receivers = _Receivers(self._receivers)
        # What had been asked to stop was cancelled by whoever asked, even if it was postponed.
        cancelled = {transition.task_id for transition in transitions if transition.verb is Verb.CANCEL}
        ran: dict[TaskId, float] = {}
        counted: list[tuple[Settlement, Task | None]] = []
        for settlement, receipt in settlements:
            if receipt is Receipt.UNKNOWN:
                continue  # It is settled again.
            task_id = settlement.lease.task_id
            task = self._claimed_tasks.pop(task_id, None)
            if receipt is Receipt.APPLIED:
                if task_id in cancelled:
                    ran[task_id] = settlement.duration
                    continue
                counted.append((settlement, task))
            self._emit_settlement(settlement, receipt, task, receivers, joined=joined)
        if counted and self.history:
            self.history.settled(counted)
        self._emit_transitions(transitions, ran=ran, joined=joined)

    def _emit_settlement(
        self,
        settlement: Settlement,
        receipt: Receipt,
        task: Task | None,
        receivers: _Receivers,
        *,
        joined: bool,
    ) -> None:
        if receipt is Receipt.APPLIED and isinstance(settlement.verdict, Complete | Bury):
            for new in settlement.verdict.successors:
                _emit(enqueued_event(new, joined=joined), receivers[EventName.ENQUEUED])
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
            joined=joined,
        )
        for take in receivers[name]:
            take(event)


def _is_expiry(transition: TaskTransition) -> bool:
    return (
        transition.verb is Verb.CANCEL and transition.error is not None and transition.error.type == EXPIRED
    )


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
