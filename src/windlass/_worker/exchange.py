"""The exchange with the store: settles finished tasks and claims new ones in one round trip.

It retries through outages and never drops a settlement. Batches form by themselves: what finishes during one
round trip goes into the next. Two are under way at a time: while the store works on one, the tasks that the
other brought are run.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .._model.lease import Claim, Claimed
from .._model.queue import Level
from .._model.task import Error
from .._model.verdict import Bury, Receipt, Settled, Settlement
from .._policy.input.quote import counted
from .._policy.order.pace import poll_interval
from .._store.outage import Pauses
from .._store.protocol import Store
from .._timers import wait_until
from ..errors import StoreError, WindlassError

if TYPE_CHECKING:
    from .worker import Worker

logger = logging.getLogger("windlass.worker")

MAX_BATCH = 1_000
_ROUND_TRIPS = 2  # under way at a time
_FIRST_PAUSE = 0.05
_SETTLE_AGAIN_AFTER = 0.5  # seconds, if the shard that has a task did not answer
_UNSETTLED = "unsettled"


class _LevelClaims(Struct, eq=False):
    """The state of claims for tasks of one level of priority, or of any (None)."""

    level: Level | None
    may_succeed: bool = True  # there was a wake, or the last claim got all it asked for
    came_up_short: bool = False  # the last claim got fewer than it asked for


class Exchange:
    """Settles and claims for a worker. Levels with reserved slots go first: others could starve them."""

    def __init__(self, store: Store, worker: "Worker") -> None:
        self._store = store
        self._held = worker.held
        self._worker = worker
        self._queues = worker.served
        self._poll = worker.settings.poll.total_seconds()
        self._finished: deque[Settlement] = deque()
        self._max_claim = min(worker.settings.slots, MAX_BATCH)
        self._under_way = 0  # settlements sent and not confirmed
        self._levels = tuple(_LevelClaims(level) for level in worker.levels)
        self._requested = dict.fromkeys(worker.levels, 0)  # tasks that claims under way may bring
        self._claims = 0  # claims under way
        self._received = 0  # tasks of all claims
        self._changed = asyncio.Event()
        self._poll_timer: asyncio.TimerHandle | None = None
        self._pauses = Pauses(worker.outage, _FIRST_PAUSE)
        self.claiming = True

    @property
    def came_up_empty(self) -> bool:
        """Whether the last claims got fewer tasks than they asked for."""
        return all(one.came_up_short for one in self._levels)

    @property
    def unsettled(self) -> int:
        """Number of settlements that the store has not confirmed."""
        return len(self._finished) + self._under_way

    @property
    def is_busy(self) -> bool:
        """Whether a settlement is unconfirmed or a claim under way."""
        return bool(self.unsettled or self._claims)

    def settle(self, settlement: Settlement) -> None:
        """Add a settlement to the next batch. It is retried until the store has applied it."""
        self._finished.append(settlement)
        self._changed.set()

    def wake(self) -> None:
        """Claim soon: there may be ready tasks."""
        self._queues.wake()
        self.claim_now()

    def claim_now(self) -> None:
        """Claim soon from queues that are known to have ready tasks."""
        for one in self._levels:
            one.may_succeed = True
        self._changed.set()

    def settled_elsewhere(self) -> None:
        """Claim soon: a task was settled in its own transaction, which made room and perhaps others ready."""
        self._claim_again(self._levels)
        self._changed.set()

    async def until_drained(self, is_idle: Callable[[], bool]) -> None:
        """Wait until no task is ready, or until the worker stops.

        Once the worker is idle and claims come up empty, all queues are looked at again: a claim may come up
        empty although tasks are ready, which others held for a moment or which the tasks that ran enqueued
        into a queue that was not known.
        """
        worker, received = self._worker, -1
        while True:
            await wait_until(
                lambda: worker.is_stopping or (self.came_up_empty and not self.is_busy and is_idle()),
                worker.changed,
            )
            if worker.is_stopping or received == self._received:
                return
            received = self._received
            if self._queues.is_open:
                with suppress(StoreError):  # Claims report it, and the one below waits until the store works.
                    await self._queues.find()
            self._queues.wake()
            self._claim_again(self._levels)
            self._changed.set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_ROUND_TRIPS):
                    group.create_task(self._round_trips())
        finally:
            if self._poll_timer is not None:
                self._poll_timer.cancel()

    async def _round_trips(self) -> None:
        while True:
            await self._until_work()
            batch = self._take_batch()
            claim = self._next_claim()
            if not batch and claim is None:
                continue
            try:
                settled = await self._store.settle(batch, claim)
            except Exception as error:  # noqa: BLE001 - no settlement may be dropped, whatever the error
                self._give_up(claim)
                await self._after_error(error, batch)
                continue
            except BaseException:
                self._give_up(claim)
                self._put_back(batch, len(batch))
                raise
            if Receipt.UNKNOWN in settled.receipts:
                batch = self._settle_again(batch, settled.receipts)
            self._under_way -= len(batch)
            if batch or not self.unsettled:  # else only a claim succeeded, and the settlements may still fail
                self._pauses.succeeded()
            self._accept(batch, claim, settled)
            self._worker.changed.set()

    async def _until_work(self) -> None:
        while not self._finished and not any(one.may_succeed and self._room(one) > 0 for one in self._levels):
            self._changed.clear()
            self._start_poll_timer()
            await self._changed.wait()

    def _start_poll_timer(self) -> None:
        """Claim at intervals without a wake, as one may be lost; jittered, so that workers do not align."""
        if self._poll_timer is None:
            seconds = poll_interval(self._poll, self._worker.crowd) * (0.5 + random.random())
            self._poll_timer = asyncio.get_running_loop().call_later(seconds, self._poll_now)

    def _poll_now(self) -> None:
        self._poll_timer = None
        self.wake()

    def _take_batch(self) -> list[Settlement]:
        finished = self._finished
        batch = [finished.popleft() for _ in range(min(len(finished), MAX_BATCH))]
        self._under_way += len(batch)
        return batch

    def _room(self, one: _LevelClaims) -> int:
        """Return how many tasks to claim: the worker's room, less what claims under way may bring."""
        return min(self._worker.room(one.level, self._requested), self._max_claim) if self.claiming else 0

    def _next_claim(self) -> Claim | None:
        """Return a claim that may succeed, else any: with settlements to send it costs nothing extra."""
        if len(self._levels) > 1:
            self._start_poll_timer()  # a level that is always busy must not keep the others from claiming
        possible = [(one, room) for one in self._levels if (room := self._room(one)) > 0]
        if not possible:
            return None
        level_claims, room = next((pair for pair in possible if pair[0].may_succeed), possible[-1])
        level_claims.may_succeed = False
        self._requested[level_claims.level] += room
        self._claims += 1
        return Claim(
            session=self._held.session,
            queues=self._queues.next(room),
            limit=room,
            number=self._held.next_claim(),
            level=level_claims.level,
            types=self._worker.unknown_types.claimable(),
        )

    def _claim_again(self, levels: Iterable[_LevelClaims]) -> None:
        """Claim these levels again: tasks may have become ready since their last claim."""
        for one in levels:
            one.came_up_short, one.may_succeed = False, True

    def _accept(self, batch: list[Settlement], claim: Claim | None, settled: Settled) -> None:
        self._held.drop([settlement.lease for settlement in batch])
        if claim is None:
            self._claim_again(self._levels)  # settling may have made successors ready
            return
        if claim.session != self._held.session:
            # The session has ended meanwhile: other workers have these tasks, or they will be rescued.
            self._give_up(claim)
            return
        self._claim_ended(claim, settled.claimed)
        if batch and claim.level is not None:  # as above; this claim saw one level only
            self._claim_again(one for one in self._levels if one.level is not claim.level)
        level_claims = next(one for one in self._levels if one.level is claim.level)
        is_short = len(settled.claimed) < claim.limit and not settled.may_claim_more
        may_succeed = self._queues.note_claim(claim.queues, settled.claimed, is_short=is_short)
        level_claims.came_up_short = not may_succeed
        level_claims.may_succeed |= may_succeed
        self._received += len(settled.claimed)
        if settled.claimed:
            self._worker.accept(settled.claimed)

    def _claim_ended(self, claim: Claim, claimed: Sequence[Claimed] = ()) -> None:
        self._requested[claim.level] -= claim.limit
        self._claims -= 1
        self._held.claim_ended(claim.number, claimed)

    def _give_up(self, claim: Claim | None) -> None:
        """Give up a claim whose reply was lost; the store takes back what it granted."""
        if claim is not None:
            self._claim_ended(claim)
            self._claim_again(self._levels)

    def _put_back(self, batch: list[Settlement], sent: int) -> None:
        """Send these again, which is safe even if they were applied; `sent` is how many the batch had."""
        self._finished.extendleft(reversed(batch))
        self._under_way -= sent
        self._changed.set()
        self._worker.changed.set()

    def _settle_again(self, batch: list[Settlement], receipts: Sequence[Receipt]) -> list[Settlement]:
        """Send soon again what a shard did not answer; return the rest. Meanwhile the others are settled."""
        pairs = list(zip(batch, receipts, strict=True))
        unknown = [one for one, receipt in pairs if receipt is Receipt.UNKNOWN]
        loop = asyncio.get_running_loop()
        loop.call_later(_SETTLE_AGAIN_AFTER, self._put_back, unknown, len(unknown))
        return [one for one, receipt in pairs if receipt is not Receipt.UNKNOWN]

    async def _after_error(self, error: Exception, batch: list[Settlement]) -> None:
        if isinstance(error, StoreError):
            pause = self._pauses.failed(error)
        else:
            number = counted(len(batch), "task")
            logger.error("cannot settle %s, retrying: %s", number, error, exc_info=error)
            pause = self._pauses.grow()
        unsettled = list(batch)
        try:
            if _is_invalid_value(error) or (isinstance(error, StoreError) and not error.transient):
                await self._settle_one_by_one(batch, unsettled)
        finally:
            self._put_back(unsettled, len(batch))
        await self._pauses.wait(pause)

    async def _settle_one_by_one(self, batch: list[Settlement], unsettled: list[Settlement]) -> None:
        """Settle each alone and remove it from `unsettled`; bury a task whose settlement is an invalid value.

        One bad settlement must not hold up the others for ever.
        """
        for settlement in batch:
            try:
                await self._store.settle([settlement])
            except Exception as error:
                if not _is_invalid_value(error):
                    continue
                index = unsettled.index(settlement)
                if settlement.outcome != _UNSETTLED:
                    logger.exception("cannot settle task %s; burying it", settlement.lease.task_id)
                    message = f"its outcome could not be recorded ({type(error).__name__})"
                    bury = Bury(error=Error(type="Unsettled", message=message))
                    unsettled[index] = replace(settlement, verdict=bury, outcome=_UNSETTLED)
                    continue
                logger.exception("cannot bury task %s either; leaving it", settlement.lease.task_id)
                del unsettled[index]  # it is rescued once this worker has stopped
            else:
                unsettled.remove(settlement)
                self._held.drop([settlement.lease])


def _is_invalid_value(error: Exception) -> bool:
    """Whether the settlement itself is at fault, so that a retry cannot help. All else is like an outage."""
    if isinstance(error, WindlassError):
        return not isinstance(error, StoreError)
    return isinstance(error, (TypeError, ValueError, OverflowError, AssertionError))
