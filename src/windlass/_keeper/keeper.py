"""The keeper: runs for leader, does its chores while it leads, and resigns."""

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import monotonic

from .._ids import new_id
from .._model.lease import CLOSE_TIMEOUT
from .._observe.history import HistoryRecorder
from .._policy.order.pace import candidate_interval
from .._store.outage import Outage
from .._store.protocol import Store, Wake
from .._store.wakes import listen_for_wakes
from .._timers import wait_for_event
from ..errors import StoreError, StoreUnavailable
from .alerts import AlertNotifier, AlertWatch
from .chores import Chore, Chores, new_pauses
from .clock_watch import ClockWatch
from .due_tasks import cancel_expired, promote_due
from .history import HistoryChore
from .prune import ArchiveChore, Archiver, PruneChore
from .rescue import RescueChore
from .schedules import Ticker
from .unhandled import UnhandledTasks
from .unserved import UnservedTasks

logger = logging.getLogger("windlass.keeper")

LEAD_FOR = timedelta(seconds=10)  # or the lease if shorter: rescues must not wait for a dead leader
_PROMOTE_EVERY = 1.0
_TICK_EVERY = 0.5
_EXPIRE_EVERY = 1.0
_PRUNE_EVERY = 60.0
_ARCHIVE_EVERY = 60.0
_ALERT_EVERY = 5.0
_UNSERVED_EVERY = 30.0
_UNHANDLED_EVERY = 600.0  # less than `UNHANDLED_GAP`, after which the count starts again
_HISTORY_EVERY = 10.0
_HISTORY_AFTER = 3.0  # the start, when there is nothing to merge yet


class Keeper:
    """Does the chores while it leads. Any process may run one; the store elects one leader.

    Every chore may be done twice or be left half done, so a leader deposed without noticing does no harm.
    """

    def __init__(  # noqa: PLR0913  made in one place, by the app
        self,
        store: Store,
        *,
        lease: timedelta,
        name: str = "",
        notifier: AlertNotifier | None = None,
        outage: Outage | None = None,
        archiver: Archiver | None = None,
        recorder: HistoryRecorder | None = None,
    ) -> None:
        self._store = store
        self._holder = new_id()
        self._name = name
        self._changed = asyncio.Event()
        self._lead_for = min(LEAD_FOR, lease)
        self._leads_until = 0.0  # by `monotonic`
        self._clock = ClockWatch(store, lease)
        self._rescue = RescueChore(store, self._clock, name, lease)
        self._alerts = AlertWatch(store, notifier or AlertNotifier(), self._on_sent)
        self._outage = outage or Outage()
        self._pauses = new_pauses(self._outage)
        self._recorder = recorder
        renew = partial(store.lead, self._holder, self._lead_for)
        self._chores = Chores(self._outage, renew, self._duties(lease, archiver))
        self._leading: asyncio.Task[None] | None = None
        self._crowd = 1  # workers of the store, each of which may run a keeper
        self.leads = False

    def _duties(self, lease: timedelta, archiver: Archiver | None) -> Sequence[Chore]:
        store, rescue_every = self._store, max(lease.total_seconds() / 10, 0.2)
        promote, expire = partial(promote_due, store), partial(cancel_expired, store)
        archives: Sequence[Chore] = ()
        if archiver is not None:
            archive = ArchiveChore(store, archiver, lambda: self._chores.hurry("prune"))
            archives = [
                Chore(name="archive", turn=archive.turn, every=_ARCHIVE_EVERY, budget=3600, is_apart=True)
            ]
        return [
            Chore(name="promote", turn=promote, every=_PROMOTE_EVERY, is_urgent=True),
            Chore(name="tick", turn=Ticker(store).fire_due, every=_TICK_EVERY, is_urgent=True),
            Chore(name="rescue", turn=self._rescue.turn, every=rescue_every, is_urgent=True),
            Chore(name="expire", turn=expire, every=_EXPIRE_EVERY, is_urgent=True),
            Chore(name="prune", turn=PruneChore(store, archiver).turn, every=_PRUNE_EVERY),
            Chore(name="alert", turn=self._alerts.evaluate_all, every=_ALERT_EVERY),
            Chore(
                name="unserved",
                turn=UnservedTasks(store).warn,
                every=_UNSERVED_EVERY,
                first_after=_UNSERVED_EVERY,  # workers of other queues may start with it
            ),
            Chore(
                name="unhandled",
                turn=UnhandledTasks(store, self._name, lease).turn,
                every=_UNHANDLED_EVERY,
                first_after=_UNSERVED_EVERY,
            ),
            Chore(
                name="history",
                turn=HistoryChore(store).turn,
                every=_HISTORY_EVERY,
                first_after=_HISTORY_AFTER,
            ),
            *archives,
        ]

    def note_crowd(self, workers: int) -> None:
        """Stand for election less often if there are many workers, and at once if most of them have gone."""
        before, self._crowd = self._crowd, workers
        if workers < before / 2:
            self._changed.set()

    async def run(self) -> None:
        """Do the chores, whenever it leads, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._recorder is not None:
                group.create_task(self._recorder.run())
            try:
                while True:
                    self._changed.clear()
                    await wait_for_event(self._changed, await self._seek_lead(group))
            finally:
                led = self.leads
                await self._stop_chores()
                if led:
                    await self._resign()

    async def _seek_lead(self, group: asyncio.TaskGroup) -> float:
        """Take or renew the lead, and start or stop the chores; return the seconds until the next time."""
        try:
            if not self.leads:
                await self._clock.look()
            seconds = await self._run_for_leader(group)
        except StoreError as error:
            pause = self._pauses.failed(error)
            if self.leads and monotonic() + pause >= self._leads_until:
                await self._stop_chores()
            await self._pauses.wait(pause)
            return 0.0
        except Exception:
            logger.exception("the keeper cannot run for leader, retrying")
            await self._stop_chores()
            return self._pauses.grow()
        self._pauses.succeeded()
        return seconds

    async def _run_for_leader(self, group: asyncio.TaskGroup) -> float:
        asked_at, lead_for = monotonic(), self._lead_for.total_seconds()
        try:
            # A leader that gets no reply must stop its chores when another may lead.
            async with asyncio.timeout_at(self._deadline()):
                leads = await self._store.lead(self._holder, self._lead_for)
        except TimeoutError:
            raise StoreUnavailable("timed out renewing the keeper's lead") from None
        if not leads:
            await self._stop_chores()
            return candidate_interval(lead_for / 4, self._crowd) * (0.75 + random.random() / 2)
        self._leads_until = asked_at + lead_for
        if not self.leads:
            self.leads = True
            logger.info("keeper %s leads", self._name or self._holder)
            self._leading = group.create_task(self._lead())
        return lead_for / 3

    def _deadline(self) -> float | None:
        """Return until when to wait for the lead, by the event loop's clock."""
        if not self.leads:
            return None
        return asyncio.get_running_loop().time() + max(self._leads_until - monotonic(), 0.1)

    async def _lead(self) -> None:
        """Do the chores, and listen for wakes: not all of perhaps thousands of keepers need them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._chores.run())
            group.create_task(listen_for_wakes(self._store, (), self._on_wake, self._outage))

    async def _stop_chores(self) -> None:
        """Stop the chores wherever they are: the next leader does what they leave."""
        self.leads = False
        leading, self._leading = self._leading, None
        if leading is not None:
            leading.cancel()
            await asyncio.wait([leading])
            await self._alerts.close()
            await self._rescue.close()

    def _on_wake(self, wake: Wake) -> None:
        """Promote at once: what was scheduled may be due before the next turn."""
        if wake is Wake.SCHEDULED:
            self._chores.hurry("promote")

    def _on_sent(self) -> None:
        """Evaluate alerts at once: the attempt to send to a webhook has ended, and others may wait for it."""
        self._chores.hurry("alert")

    async def _resign(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._store.lead(self._holder, timedelta(0))
