"""The keeper: is elected, does its chores at their intervals, resigns."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from .._ids import new_id
from .._model.lease import Heartbeat
from .._model.queue import Retention
from .._model.record import KEEPER, Session, Worker
from .._policy.backoff import Delay
from .._store.protocol import Store, Wake
from .._timers import happened
from ..errors import SessionLost, StoreError
from .alerts import Alerting, AlertWatch
from .clock import ClockWatch
from .hints import hear
from .promotions import promote_due
from .rescues import rescue_silent
from .retention import prune_expired
from .schedules import Ticker

logger = logging.getLogger("windlass.keeper")

LEAD_FOR = timedelta(seconds=10)  # or the lease, if that is shorter: rescues must not wait for a dead leader
FAREWELL = 2.0  # seconds for last words to a store that may be out of reach; what is not said runs out
_PROMOTE_EVERY = 1.0
_PRUNE_EVERY = 60.0
_PRUNE_ON = 1.0  # while there is more to prune than one round takes
_ALERT_EVERY = 5.0
_TICK_AGAIN = 0.5  # after a failure
_TRY_AGAIN = 0.5


class Keeper:
    """Does the chores while it leads. Any process may run one; the store sees to it that one leads.

    Every chore is safe to do twice and safe to leave half done, so a leader that is deposed without
    noticing does no harm.
    """

    def __init__(
        self,
        store: Store,
        *,
        backoff: Callable[[str], Delay],
        retention: Retention,
        lease: timedelta,
        name: str = "",
        alerting: Alerting | None = None,
    ) -> None:
        self._store = store
        self._backoff = backoff
        self._retention = retention
        self._lease = lease
        self._holder = new_id()
        self._session = new_id()
        self._name = name
        self._changed = asyncio.Event()
        self._lead_for = min(LEAD_FOR, lease)
        self._due = dict.fromkeys(("lead", "promote", "rescue", "prune", "beat", "alert", "tick"), 0.0)
        self._clock = ClockWatch()
        self._ticker = Ticker(store)
        self._alerts = AlertWatch(store, alerting or Alerting(), self._on_sent)
        self.leads = False

    async def run(self) -> None:
        """Keep house until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(hear(self._store, (), self._on_wake, logger))
            try:
                while True:
                    self._changed.clear()  # before the look: what is scheduled during it must not be missed
                    wait = await self._round()
                    await happened(self._changed, wait)
            finally:
                await self._alerts.close()
                await self._resign()

    async def _round(self) -> float:
        """One look at everything; answers with the seconds until the next."""
        try:
            await self._watch_clock()
            if not await self._campaign():
                return self._lead_for.total_seconds() / 4 * (0.75 + random.random() / 2)
            return await self._chores()
        except (StoreError, SessionLost) as error:
            logger.warning("the keeper is held up: %s", error)
            self.leads = False
        except Exception:
            logger.exception("a chore failed; it is left for the next time")
        return _TRY_AGAIN * (1 + 2 * random.random())

    async def _watch_clock(self) -> None:
        """After a step of the store's clock, live workers renew their sessions before any is rescued.

        Who does not lead watches as well: the step that ends sessions also ends the leader's lead.
        """
        if self.leads and monotonic() < self._due["rescue"]:
            return
        lease = self._lease.total_seconds()
        step = await self._clock.step(self._store)
        if step > lease / 10:
            logger.warning("the store's clock was set forward by %.1f s; rescues wait %g s", step, lease / 2)
            self._due["rescue"] = monotonic() + lease / 2

    async def _campaign(self) -> bool:
        """Take the lead or keep it; while it is fresh the store need not be asked."""
        if self.leads and monotonic() < self._due["lead"]:
            return True
        self._due["lead"] = monotonic() + self._lead_for.total_seconds() / 3
        led, self.leads = self.leads, await self._store.lead(self._holder, self._lead_for)
        if self.leads and not led:
            logger.info("keeper %s leads", self._name or self._holder)
        return self.leads

    async def _chores(self) -> float:
        now = monotonic()
        # The next time is set first: a chore that fails must not keep those after it from being done.
        if now >= self._due["tick"]:
            self._due["tick"] = now + _TICK_AGAIN
            self._due["tick"] = monotonic() + await self._ticker.fire_due()
        if now >= self._due["rescue"]:
            self._due["rescue"] = now + max(self._lease.total_seconds() / 10, 0.2)
            await self._rescue()
        if now >= self._due["prune"]:
            self._due["prune"] = now + _PRUNE_EVERY
            if await prune_expired(self._store, self._retention):
                self._due["prune"] = now + _PRUNE_ON
        if now >= self._due["alert"]:
            self._due["alert"] = now + _ALERT_EVERY
            await self._alerts.look()
        until_next = await promote_due(self._store)
        self._due["promote"] = now + min(_PROMOTE_EVERY, until_next)
        next_due = min(self._due[chore] for chore in ("lead", "promote", "rescue", "prune", "alert", "tick"))
        return max(next_due - monotonic(), 0.0)

    async def _rescue(self) -> None:
        """Rescued tasks are leased to the keeper's own session until they are settled."""
        if monotonic() >= self._due["beat"]:
            await self._beat()
        try:
            await rescue_silent(self._store, self._session, self._backoff)
        except Exception:
            # What this session may hold by now nobody knows; without it, it is rescued anew.
            ended, self._session = self._session, new_id()
            self._due["beat"] = 0.0
            with suppress(StoreError):
                await self._store.remove(Session, ended)
            raise

    async def _beat(self) -> None:
        await self._store.heartbeat(
            Heartbeat(
                session=self._session,
                worker=Worker(name=f"{KEEPER} {self._name}".strip()),
                lease_for=self._lease,
                opening=True,
                through=-1,  # what it is about to settle must not be handed back meanwhile
            )
        )
        self._due["beat"] = monotonic() + self._lease.total_seconds() / 4

    def _on_wake(self, wake: Wake) -> None:
        """Something new is scheduled: it may be due before the next look."""
        if wake is Wake.SCHEDULED and self.leads:
            self._changed.set()

    def _on_sent(self) -> None:
        """A webhook has answered, or has not: that is noted, and what waits behind it is sent."""
        self._due["alert"] = 0.0
        self._changed.set()

    async def _resign(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                if self.leads:
                    await self._store.lead(self._holder, timedelta(0))
                await self._store.remove(Session, self._session)
