"""Run the keeper's chores side by side, each with its own interval, time budget, retries and failures."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import TypeAlias

from msgspec import Struct

from .._store.outage import Outage, Pauses, ShardUnavailable
from .._timers import wait_for_event
from ..errors import SessionLost, StoreError

logger = logging.getLogger("windlass.keeper")

_RETRY_AFTER, _LAST_RETRY_AFTER = 0.5, 2.0
_LONGEST_RETRY_AFTER = 30.0  # of chores that are done seldom
_BUDGET = 10.0  # seconds; turns that take longer are logged
_REMIND_AFTER = 600.0  # seconds until a chore that still fails is logged again
_WARN_EVERY = 60.0  # seconds between two lines about one chore

Turn: TypeAlias = Callable[[], Awaitable[float | None]]
"""Does what is due; returns the seconds until more is, None: the usual interval."""

Probe: TypeAlias = Callable[[], Awaitable[object]]


class Chore(Struct, frozen=True, kw_only=True):
    """One duty of the keeper.

    Tasks wait for an urgent chore, so each runs beside all others. Of the patient ones, one runs at a time,
    so that together they use one connection of the store. One that is `apart` may take hours and hardly uses
    the store.
    """

    name: str
    turn: Turn
    every: float  # seconds
    first_after: float = 0.0  # seconds from when this keeper leads
    budget: float | None = None  # seconds that one turn should take at most; None: `_BUDGET`
    is_urgent: bool = False
    is_apart: bool = False


class Chores:
    """The chores of a leader. One that is slow, or fails for ever, does not hold up the others.

    `probe` raises StoreError if the store is not available; a chore that fails calls it to tell an outage of
    the store from a failure of its own.
    """

    def __init__(self, outage: Outage, probe: Probe, chores: Sequence[Chore]) -> None:
        self._loops = {chore.name: _ChoreLoop(outage, probe, chore) for chore in chores}

    async def run(self) -> None:
        """Run all chores until cancelled."""
        lane = asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            for loop in self._loops.values():
                group.create_task(loop.run(lane))

    def hurry(self, name: str) -> None:
        """Run a chore now or, if it is running, once more after this turn."""
        self._loops[name].wanted.set()

    def turns(self, name: str) -> int:
        """Return how many turns of a chore have succeeded."""
        return self._loops[name].turns


def new_pauses(outage: Outage, every: float = 0.0) -> Pauses:
    """Return the pauses after failures of what is done every so many seconds."""
    return Pauses(outage, _RETRY_AFTER, max(_LAST_RETRY_AFTER, min(every, _LONGEST_RETRY_AFTER)))


class _ChoreLoop:
    """One chore at its interval. What fails is retried after a pause that grows."""

    def __init__(self, outage: Outage, probe: Probe, chore: Chore) -> None:
        self._probe = probe
        self._chore = chore
        self._budget = _BUDGET if chore.budget is None else chore.budget
        self.wanted = asyncio.Event()
        self._pauses = new_pauses(outage, chore.every)
        self.turns = 0  # that succeeded
        self._failures = 0  # in a row
        self._has_failed = False  # and that was logged
        self._logged_at = self._warned_at = float("-inf")

    async def run(self, lane: asyncio.Lock) -> None:
        """Take turns until cancelled."""
        is_alone = self._chore.is_urgent or self._chore.is_apart
        seconds = self._chore.first_after
        try:
            while True:
                await wait_for_event(self.wanted, seconds)
                self.wanted.clear()  # before the turn, so that nothing that happens during it is missed
                try:
                    async with nullcontext() if is_alone else lane:
                        seconds = await self._turn()
                except StoreError as error:  # no other chore can do anything either
                    await self._pauses.wait(self._pauses.failed(error))
                    seconds = 0.0
        finally:
            self._pauses.end()

    async def _turn(self) -> float:
        """Do what is due; return the seconds until the next turn. Raises StoreError during an outage."""
        try:
            with self._timed():
                seconds = await self._chore.turn()
        except Exception as error:  # noqa: BLE001  a bug must not stop the other chores
            return await self._failed(error)
        self._pauses.succeeded()
        self.turns += 1
        self._failures = 0
        if self._has_failed:
            self._has_failed = False
            logger.info("the keeper finishes the chore %s again", self._chore.name)
        return self._chore.every if seconds is None else seconds

    async def _failed(self, error: Exception) -> float:
        """Log a failure; return the seconds until the next turn. Raises StoreError during an outage."""
        if isinstance(error, StoreError) and error.transient:
            try:
                await self._probe()
            except StoreError:
                raise
            except Exception as bug:  # noqa: BLE001  nor may one in the probe
                error = bug
        self._pauses.reached()
        self._log_failure(error, trace=not isinstance(error, StoreError | SessionLost))
        # What needs only the other shards was done, and is due again at the usual interval.
        return self._chore.every if isinstance(error, ShardUnavailable) else self._pauses.grow()

    def _log_failure(self, error: Exception, *, trace: bool = False) -> None:
        """Log a failure once until the chore succeeds, then reminders; a transient one if it repeats."""
        self._failures += 1
        is_final = trace or (isinstance(error, StoreError) and not error.transient)
        quiet_until = self._logged_at + (_REMIND_AFTER if self._has_failed else _WARN_EVERY)
        if (self._failures == 1 and not is_final) or monotonic() < quiet_until:
            return
        self._has_failed, self._logged_at = True, monotonic()
        logger.log(
            logging.ERROR if is_final else logging.WARNING,
            "the keeper cannot finish the chore %s, retrying: %s",
            self._chore.name,
            error,
            exc_info=error if trace else None,
        )

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Log, once a minute, that a turn takes longer than its budget, while it does."""
        loop, began = asyncio.get_running_loop(), monotonic()
        timer: asyncio.TimerHandle

        def overrun() -> None:
            nonlocal timer
            timer = loop.call_later(_WARN_EVERY, overrun)
            if monotonic() >= self._warned_at + _WARN_EVERY:
                self._warned_at = monotonic()
                logger.warning(
                    "the keeper's chore %s has taken %.1f s so far, more than its budget of %g s",
                    self._chore.name,
                    monotonic() - began,
                    self._budget,
                )

        timer = loop.call_later(self._budget, overrun)
        try:
            yield
        finally:
            timer.cancel()
