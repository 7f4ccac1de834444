"""The exchange with the store: finished work goes in, new work comes out, in one round trip. (D10)

It keeps trying through outages and never drops a settlement. Batches form by themselves: whatever
finished while the last round trip was under way goes into the next. Two are under way at a time: while the
store works on one, what the other brought is run.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Protocol

from .._model.lease import Claim, Claimed
from .._model.queue import Level
from .._model.task import Error
from .._model.verdict import Bury, Settled, Settlement
from .._store.protocol import Store
from ..errors import StoreError, WindlassError
from .held_leases import Holdings

logger = logging.getLogger("windlass.worker")

MAX_BATCH = 1_000
_FLIGHTS = 2
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 5.0
_TELL_AGAIN = 60.0  # seconds after which an error that stays the same is told of again
_UNSETTLED = "unsettled"


class Taker(Protocol):
    """Who takes what the exchange claims: the worker, seen from here."""

    @property
    def levels(self) -> tuple[Level | None, ...]:
        """What claims are for, each apart: levels that have slots of their own, and last any (None)."""
        ...

    def room(self, level: Level | None, asked: Mapping[Level | None, int]) -> int:
        """How many more tasks, of a level or of any (None), it can take beside those that were asked for."""
        ...

    def deliver(self, claimed: Sequence[Claimed]) -> None:
        """Here they are."""
        ...

    def confirmed(self) -> None:
        """The store has answered: settlements are applied."""
        ...


class Line:
    """What one kind of claim has come to: for tasks of a level, or of any (None)."""

    __slots__ = ("empty", "level", "look")

    def __init__(self, level: Level | None) -> None:
        self.level = level
        self.look = True  # a claim may succeed: something woke us, or the last one was full
        self.empty = False  # the last claim found fewer than it asked for


class Exchange:
    """Settles and claims for a worker.

    Claims for a level that has slots of its own go before those for any level: tasks of any, being many,
    would keep them waiting for ever.
    """

    def __init__(
        self,
        store: Store,
        holdings: Holdings,
        queues: tuple[str, ...],
        taker: Taker,
        *,
        poll: float,
        most: int = MAX_BATCH,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._queues = queues
        self._taker = taker
        self._poll = poll
        self._finished: deque[Settlement] = deque()
        self._most = min(most, MAX_BATCH)  # that one claim asks for
        self._under_way = 0  # settlements that are out
        self._lines = tuple(Line(level) for level in taker.levels)
        self._asked = dict.fromkeys(taker.levels, 0)  # tasks that claims under way may bring
        self._claims = 0  # claims under way
        self._changed = asyncio.Event()
        self._poll_timer: asyncio.TimerHandle | None = None
        self._told = ""  # of what the store refused last, and when
        self._told_at = 0.0
        self.claiming = True

    @property
    def came_up_empty(self) -> bool:
        """The last claims found fewer than they asked for."""
        return all(line.empty for line in self._lines)

    @property
    def unsettled(self) -> int:
        """Settlements that the store has not confirmed."""
        return len(self._finished) + self._under_way

    @property
    def is_busy(self) -> bool:
        """Something is out: settlements that are not confirmed, or a claim that is not answered."""
        return bool(self.unsettled or self._claims)

    def settle(self, settlement: Settlement) -> None:
        """Hand in a settlement; it will be applied, however long that takes."""
        self._finished.append(settlement)
        self._changed.set()

    def wake(self) -> None:
        """A claim may succeed now."""
        for line in self._lines:
            line.look = True
        self._changed.set()

    def settled_elsewhere(self) -> None:
        """A task has ended in a transaction of its own: there is room, and others may have become ready."""
        self._look_again(self._lines)
        self._changed.set()

    async def run(self) -> None:
        """Trade until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_FLIGHTS):
                    group.create_task(self._trade())
        finally:
            if self._poll_timer is not None:
                self._poll_timer.cancel()

    async def _trade(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._something_to_do()
            batch = self._take_batch()
            claim = self._next_claim()
            if not batch and claim is None:
                continue
            try:
                settled = await self._store.settle(batch, claim)
            except Exception as error:  # noqa: BLE001  whatever it was, no settlement is dropped
                self._give_up(claim)
                pause = await self._after_trouble(error, batch, pause)
                continue
            except BaseException:
                self._give_up(claim)
                self._put_back(batch, len(batch))
                raise
            pause = _FIRST_PAUSE
            self._under_way -= len(batch)
            self._answered(claim)
            self._accept(batch, claim, settled)
            self._taker.confirmed()

    async def _something_to_do(self) -> None:
        while not self._finished and not any(line.look and self._room(line) > 0 for line in self._lines):
            self._changed.clear()
            self._arm_poll()
            await self._changed.wait()

    def _arm_poll(self) -> None:
        """Look by ourselves now and then, in case a wake was lost; not all workers at the same time."""
        if self._poll_timer is None:
            loop = asyncio.get_running_loop()
            self._poll_timer = loop.call_later(self._poll * (0.5 + random.random()), self._poll_due)

    def _poll_due(self) -> None:
        self._poll_timer = None
        self.wake()

    def _take_batch(self) -> list[Settlement]:
        finished = self._finished
        batch = [finished.popleft() for _ in range(min(len(finished), MAX_BATCH))]
        self._under_way += len(batch)
        return batch

    def _room(self, line: Line) -> int:
        """How many to claim: what there is room for, and has not been asked for already."""
        return min(self._taker.room(line.level, self._asked), self._most) if self.claiming else 0

    def _next_claim(self) -> Claim | None:
        """One that may succeed; failing that any, as it costs no more than settling alone."""
        if len(self._lines) > 1:
            self._arm_poll()  # one line that is always busy must not keep the others from ever looking
        open_lines = [(line, room) for line in self._lines if (room := self._room(line)) > 0]
        if not open_lines:
            return None
        line, room = next((pair for pair in open_lines if pair[0].look), open_lines[-1])
        line.look = False
        self._asked[line.level] += room
        self._claims += 1
        return Claim(
            session=self._holdings.session,
            queues=self._queues,
            limit=room,
            number=self._holdings.next_claim(),
            level=line.level,
        )

    def _look_again(self, lines: Iterable[Line]) -> None:
        """Tasks may have become ready that these have not seen."""
        for line in lines:
            line.empty, line.look = False, True

    def _accept(self, batch: list[Settlement], claim: Claim | None, settled: Settled) -> None:
        self._holdings.dropped([settlement.lease for settlement in batch])
        if claim is None:
            self._look_again(self._lines)  # what was settled may have made others ready
            return
        if claim.session != self._holdings.session:
            # Granted to a session that has ended meanwhile: they are others' by now, or will be rescued.
            self._holdings.given_up(claim.number)
            self._look_again(self._lines)
            return
        self._holdings.claimed(claim.number, settled.claimed)
        if batch and claim.level is not None:  # as above; this claim has seen one level only
            self._look_again(line for line in self._lines if line.level is not claim.level)
        line = next(line for line in self._lines if line.level is claim.level)
        line.empty = len(settled.claimed) < claim.limit
        if not line.empty:
            line.look = True
        if settled.claimed:
            self._taker.deliver(settled.claimed)

    def _answered(self, claim: Claim | None) -> None:
        if claim is not None:
            self._asked[claim.level] -= claim.limit
            self._claims -= 1

    def _give_up(self, claim: Claim | None) -> None:
        """What a lost call may have granted is handed back."""
        self._answered(claim)
        if claim is not None:
            self._holdings.given_up(claim.number)
            self._look_again(self._lines)

    def _put_back(self, batch: list[Settlement], taken: int) -> None:
        """What a lost call may have done is safe to repeat; `taken` were out, some may be settled by now."""
        self._finished.extendleft(reversed(batch))
        self._under_way -= taken
        self._changed.set()
        self._taker.confirmed()

    async def _after_trouble(self, error: Exception, batch: list[Settlement], pause: float) -> float:
        if isinstance(error, StoreError) and error.transient:
            logger.warning("the store is not available, trying again: %s", error)
            self._put_back(batch, len(batch))
        else:
            self._tell(error, len(batch))
            left = list(batch)
            try:
                if isinstance(error, StoreError) or _is_of_value(error):
                    await self._isolate_trouble(batch, left)
            finally:
                self._put_back(left, len(batch))
        await asyncio.sleep(pause * (0.5 + random.random()))
        return min(pause * 2, _LAST_PAUSE)

    def _tell(self, error: Exception, number: int) -> None:
        """What a store refuses is plain, and goes on until somebody mends it: a line now and then will do."""
        if not isinstance(error, StoreError):
            logger.error("settling %d tasks failed, trying again: %s", number, error, exc_info=error)
        elif str(error) != self._told or monotonic() >= self._told_at + _TELL_AGAIN:
            self._told, self._told_at = str(error), monotonic()
            logger.error("the store refuses, trying again: %s", error)

    async def _isolate_trouble(self, batch: list[Settlement], left: list[Settlement]) -> None:
        """One settlement that the store cannot take must not hold up the others for ever: bury its task.

        What is settled goes from those that are left.
        """
        for settlement in batch:
            try:
                await self._store.settle([settlement])
            except Exception as error:
                if not _is_of_value(error):
                    continue
                place = left.index(settlement)
                if settlement.outcome != _UNSETTLED:
                    logger.exception("task %s cannot be settled and is buried", settlement.lease.task_id)
                    left[place] = _buried(settlement, error)
                    continue
                logger.exception("task %s cannot even be buried; it is kept", settlement.lease.task_id)
                del left[place]  # its lease ends with this worker, and it is rescued then
            else:
                left.remove(settlement)
                self._holdings.dropped([settlement.lease])


def _is_of_value(error: Exception) -> bool:
    """Whether the value itself is at fault, so that trying again cannot help. All else is like an outage."""
    if isinstance(error, WindlassError):
        return not isinstance(error, StoreError)
    return isinstance(
        error, (TypeError, ValueError, OverflowError, AssertionError)
    )  # UnicodeError is a ValueError


def _buried(settlement: Settlement, error: Exception) -> Settlement:
    told = Error(type="Unsettled", message=f"its outcome could not be recorded ({type(error).__name__})")
    return Settlement(
        lease=settlement.lease, verdict=Bury(error=told), outcome=_UNSETTLED, duration=settlement.duration
    )
