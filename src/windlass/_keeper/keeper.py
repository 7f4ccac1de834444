"""The keeper: runs for leader, does its chores at their intervals while it leads, and resigns."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Protocol, TypeAlias

from .._ids import new_id
from .._model.filter import Expire, Filter
from .._model.lease import CLOSE_TIMEOUT, NO_CLAIMS, Claimed, Heartbeat
from .._model.options import DeclaredType, by_name_or_alias
from .._model.outcome import Crashed, Outcome, Stopped, name_of
from .._model.queue import Retention
from .._model.record import Archive, Session, Worker
from .._model.task import Error
from .._model.verdict import Settlement
from .._observe.history import HistoryRecorder
from .._policy.backoff import Delay
from .._policy.input.quote import counted
from .._policy.order.pace import candidate_interval
from .._policy.task_type import stored_backoff
from .._policy.verdict import decide
from .._store.outage import Outage, Pauses, ShardUnavailable
from .._store.protocol import Store, Wake, all_records
from .._store.wakes import listen_for_wakes
from .._timers import wait_for_event
from ..errors import SessionLost, StoreError
from .alerts import AlertNotifier, AlertWatch
from .history import HistoryChore
from .schedules import Ticker
from .unserved import UnservedQueues

logger = logging.getLogger("windlass.keeper")

LEAD_FOR = timedelta(seconds=10)  # or the lease if shorter: rescues must not wait for a dead leader
_PROMOTE_EVERY = 1.0
_EXPIRE_EVERY = 1.0
_PRUNE_EVERY = 60.0
_PRUNE_AGAIN_AFTER = 1.0  # if there is more to prune than one turn deletes
_ALERT_EVERY = 5.0
_UNSERVED_EVERY = 30.0
_HISTORY_AFTER = 3.0  # the start, when there is nothing to merge yet
_HISTORY_AGAIN_AFTER = 10.0  # after a failure
_TICK_AGAIN_AFTER = 0.5  # after a failure
_RETRY_AFTER, _LAST_RETRY_AFTER = 0.5, 2.0
_WARN_EVERY = 3600.0
PROMOTE_BATCH = 1_000
EXPIRE_BATCH = 500
RESCUE_BATCH = 500
PRUNE_BATCH = 500
_MAX_PRUNE_BATCHES = 20  # at a time, so that pruning does not hold up the other chores
_NOTHING_SCHEDULED = 3600.0
_HEAD_START = 10.0  # seconds by which promoting goes before other chores, as tasks wait for it


Chore: TypeAlias = Callable[[], Awaitable[float | None]]
"""Does what is due; returns the seconds until more is, None: the usual interval."""


class Archiver(Protocol):
    """Writes history to files before it is pruned."""

    async def turn_on(self, store: Store) -> None:
        """Note in the store that only archived tasks may be pruned."""

    async def write_due(self, store: Store) -> bool:
        """Write what is due; return whether there is more to prune now. Logs failures; may take long."""


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
        self._lease = lease
        self._holder = new_id()
        self._session = new_id()
        self._name = name
        self._changed = asyncio.Event()
        self._lead_for = min(LEAD_FOR, lease)
        self._last_clock: tuple[datetime, float] | None = None  # the store's time, and `monotonic` before it
        self._ticker = Ticker(store)
        self._alerts = AlertWatch(store, notifier or AlertNotifier(), self._on_sent)
        self._archiver = archiver
        self._archiving: asyncio.Task[bool] | None = None
        self._listening: asyncio.Task[None] | None = None  # for wakes, while it leads
        self._warned_at = -_WARN_EVERY  # that nothing is archived
        self._outage = outage or Outage()
        self._pauses = Pauses(self._outage, _RETRY_AFTER, _LAST_RETRY_AFTER)
        self._unserved = UnservedQueues(store)
        self._history = HistoryChore(store)
        self._recorder = recorder
        self._chores: dict[str, tuple[Chore, float]] = {
            "promote": (self._promote, _PROMOTE_EVERY),
            "tick": (self._ticker.fire_due, _TICK_AGAIN_AFTER),
            "rescue": (self._rescue, max(lease.total_seconds() / 10, 0.2)),
            "prune": (self._prune, _PRUNE_EVERY),
            "alert": (self._alerts.evaluate_all, _ALERT_EVERY),
            "expire": (partial(cancel_expired, store), _EXPIRE_EVERY),
            "unserved": (self._unserved.warn, _UNSERVED_EVERY),
            "history": (self._history.turn, _HISTORY_AGAIN_AFTER),
        }
        self._due = dict.fromkeys((*self._chores, "lead", "heartbeat"), monotonic())  # when to do each
        self._due["unserved"] = monotonic() + _UNSERVED_EVERY  # workers of other queues may start with it
        self._due["history"] = monotonic() + _HISTORY_AFTER
        self._failed: set[str] = set()  # chores that failed the last time for want of a shard
        self._crowd = 1  # workers of the store, each of which may run a keeper
        self.leads = False

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
                    self._changed.clear()  # before the turn, so that no wake during it is missed
                    await wait_for_event(self._changed, await self._turn())
            finally:
                await self._stop_listening()
                await self._stop_archiving()
                await self._alerts.close()
                await self._resign()

    async def _turn(self) -> float:
        """Run for leader and do the chores that are due; return the seconds until the next turn."""
        try:
            await self._watch_clock()
            if await self._run_for_leader():
                seconds = await self._do_chores()
            else:
                interval = candidate_interval(self._lead_for.total_seconds() / 4, self._crowd)
                seconds = interval * (0.75 + random.random() / 2)
        except StoreError as error:
            self.leads = False
            await self._pauses.wait(self._pauses.failed(error))
            return 0.0
        except SessionLost as error:
            logger.warning("the keeper cannot do its chores, retrying: %s", error)
            self.leads = False
        except Exception:
            logger.exception("a chore of the keeper failed; it will be retried at its next turn")
        else:
            self._pauses.succeeded()
            return seconds
        return self._pauses.grow()

    async def _watch_clock(self) -> None:
        """If the store's clock was set forward, delay rescues until live workers have renewed their sessions.

        Sessions expire by the store's clock. A step forward (NTP, a suspended machine) expires those of
        healthy workers too, which renew them within a heartbeat; a step back expires nothing. Followers watch
        too: the step that expires sessions also expires the leader's lead.
        """
        if self.leads and monotonic() < self._due["rescue"]:
            return
        lease = self._lease.total_seconds()
        before, now, after = monotonic(), await self._store.now(), monotonic()
        last, last_before = self._last_clock or (now, after)
        self._last_clock = now, before
        step = (now - last).total_seconds() - (after - last_before)  # by which it has certainly run ahead
        if step > lease / 10:
            logger.warning(
                "the store's clock was set forward by %.1f s; delaying rescues by %g s", step, lease / 2
            )
            self._due["rescue"] = monotonic() + lease / 2

    async def _run_for_leader(self) -> bool:
        """Take or renew the lead, if it is time to; return whether it leads."""
        if self.leads and monotonic() < self._due["lead"]:
            return True
        self._due["lead"] = monotonic() + self._lead_for.total_seconds() / 3
        led, self.leads = self.leads, await self._store.lead(self._holder, self._lead_for)
        if self.leads and not led:
            logger.info("keeper %s leads", self._name or self._holder)
        if not self.leads:
            await self._stop_listening()
        elif self._listening is None:
            listen = listen_for_wakes(self._store, (), self._on_wake, self._outage)
            self._listening = asyncio.create_task(listen)
        return self.leads

    async def _stop_listening(self) -> None:
        """Listen only while it leads: there may be thousands of keepers, and only the leader needs wakes."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])

    async def _do_chores(self) -> float:
        """Do what is due; return the seconds until the next chore is.

        A chore that fails ends the turn, unless it needs a shard that is not available. So the next time is
        set first, and the longest overdue is done first: what fails at every turn does not keep the others
        from being done. Promoting is due at every turn, as a wake may have begun it.
        """
        now = monotonic()
        self._due["promote"] = now - _HEAD_START
        for name in sorted(self._chores, key=self._due.__getitem__):
            if now >= self._due[name]:
                do, every = self._chores[name]
                self._due[name] = now + every
                try:
                    seconds = await do()
                except ShardUnavailable as error:
                    await self._store.now()  # raises if no shard is available
                    self._log_failed(name, error)
                    continue
                self._failed.discard(name)
                if seconds is not None:
                    self._due[name] = monotonic() + seconds
        return max(min(self._due[name] for name in (*self._chores, "lead")) - monotonic(), 0.0)

    def _log_failed(self, chore: str, error: ShardUnavailable) -> None:
        """Log that a chore failed, once until it succeeds."""
        if chore not in self._failed:
            self._failed.add(chore)
            logger.warning("the keeper cannot finish the chore %s, retrying: %s", chore, error)

    async def _promote(self) -> float:
        return min(_PROMOTE_EVERY, await promote_due(self._store))

    async def _prune(self) -> float | None:
        await self._archive()
        return _PRUNE_AGAIN_AFTER if await prune_expired(self._store) else None

    async def _archive(self) -> None:
        """Archive beside the other chores, as it may take long. The store prunes only what was archived."""
        if self._archiver is None:
            await self._warn_if_archiving()
            return
        await self._archiver.turn_on(self._store)
        if self._archiving is None or self._archiving.done():
            self._archiving = asyncio.create_task(self._archiver.write_due(self._store))
            self._archiving.add_done_callback(self._on_archived)

    def _on_archived(self, archiving: "asyncio.Task[bool]") -> None:
        """Prune at once what was archived."""
        if not archiving.cancelled() and archiving.result():
            self._due["prune"] = 0.0
            self._changed.set()

    async def _warn_if_archiving(self) -> None:
        archives = await all_records(self._store, Archive)
        if archives and monotonic() >= self._warned_at + _WARN_EVERY:
            self._warned_at = monotonic()
            logger.warning(
                "archiving is on, but this keeper has no archive; what ended since %s is not pruned. "
                "Give every worker and keeper --archive, or turn it off with `windlass archive stop`",
                archives[0].until.isoformat(),
            )

    async def _stop_archiving(self) -> None:
        if self._archiving is not None:
            self._archiving.cancel()
            await asyncio.wait([self._archiving])

    async def _rescue(self) -> None:
        """Rescue into the keeper's own session, which holds the leases until they are settled."""
        if monotonic() >= self._due["heartbeat"]:
            await self._send_heartbeat()
        try:
            await rescue_silent(self._store, self._session)
        except Exception:
            # It is not known what this session holds now; once it has ended, that is rescued again.
            ended, self._session = self._session, new_id()
            self._due["heartbeat"] = 0.0
            with suppress(StoreError):
                await self._store.remove(Session, ended)
            raise

    async def _send_heartbeat(self) -> None:
        await self._store.heartbeat(
            Heartbeat(
                session=self._session,
                worker=Worker(name=f"keeper {self._name}".strip(), keeper=True),
                lease_for=self._lease,
                opening=True,
                through=NO_CLAIMS,  # or the store would hand back what is about to be settled
            )
        )
        self._due["heartbeat"] = monotonic() + self._lease.total_seconds() / 4

    def _on_wake(self, wake: Wake) -> None:
        """Take the next turn at once: what was scheduled may be due before it."""
        if wake is Wake.SCHEDULED and self.leads:
            self._changed.set()

    def _on_sent(self) -> None:
        """Evaluate alerts at once: the attempt to send to a webhook has ended, and others may wait for it."""
        self._due["alert"] = 0.0
        self._changed.set()

    async def _resign(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                if self.leads:
                    await self._store.lead(self._holder, timedelta(0))
                await self._store.remove(Session, self._session)


async def promote_due(store: Store) -> float:
    """Promote every task that is due; return the seconds until the next one is."""
    while True:
        promoted = await store.promote(PROMOTE_BATCH)
        if promoted.number < PROMOTE_BATCH:
            break
    if promoted.next_at is None:
        return _NOTHING_SCHEDULED
    return max((promoted.next_at - await store.now()).total_seconds(), 0.0)


async def cancel_expired(store: Store) -> None:
    """Cancel every task that has not started by its expiry."""
    until = await store.now() + timedelta(microseconds=1)
    where = Filter(expires_before=until)
    while len((await store.apply(Expire(), where, EXPIRE_BATCH)).ids) == EXPIRE_BATCH:
        continue


async def rescue_silent(store: Store, session: str) -> int:
    """Take over and settle the tasks of workers whose session has expired; return how many there were.

    A rescue is a claim: the lease is taken over, then policy decides and the ordinary settle applies it. If
    the keeper dies in between, its own session expires and the tasks are rescued again. The delays are those
    of each task's type as programs have published it: the keeper may belong to another program.
    """
    total = 0
    while rescued := await store.rescue(session, RESCUE_BATCH):
        types = by_name_or_alias(await all_records(store, DeclaredType))
        await store.settle([_settlement(one, stored_backoff(types.get(one.task.type))) for one in rescued])
        total += len(rescued)
    if total:
        logger.warning("rescued %s from workers without a heartbeat", counted(total, "task"))
    return total


def _settlement(claimed: Claimed, backoff: Delay) -> Settlement:
    task = claimed.task
    if task.cancel_requested:
        outcome: Outcome = Stopped()
    else:
        message = (
            f"worker {task.worker} sent no heartbeat during attempt {task.attempt} of {task.max_attempts}"
        )
        outcome = Crashed(error=Error(type="WorkerLost", message=message))
    verdict = decide(task, outcome, backoff, random.random())
    return Settlement(lease=claimed.lease, verdict=verdict, outcome=name_of(outcome))


async def prune_expired(store: Store) -> bool:
    """Delete ended tasks past their retention, in batches; return whether there may be more.

    The retention is that of queues and types as the store has them, never the keeper's own program's.
    """
    for _ in range(_MAX_PRUNE_BATCHES):
        if (await store.prune(Retention(), PRUNE_BATCH)).number < PRUNE_BATCH:
            return False
    return True
