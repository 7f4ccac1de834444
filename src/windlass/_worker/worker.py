"""The worker: connects its slots, its exchange with the store and its heartbeat, from start to stop."""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import metadata
from time import monotonic, perf_counter

from msgspec.structs import replace

from .._client.published_types import KnownTypes
from .._encryption.encrypted_store import key_ids_of
from .._handler.failure import describe
from .._handler.hooks import Hooks
from .._handler.lifespan import Lifespans
from .._handler.spec import HandlerSpec
from .._keeper.keeper import Keeper
from .._model.lease import CLOSE_TIMEOUT, Claimed, HeartbeatReply, Lease
from .._model.outcome import Interrupted, Locked, Outcome, name_of
from .._model.queue import Level
from .._model.record import Session
from .._model.record import Worker as WorkerRecord
from .._model.task import DEFAULT_QUEUE, Task
from .._model.verdict import Bury, Settlement
from .._observe.log_secrets import install_filter
from .._observe.observed_store import ObservedStore
from .._policy.backoff import Delay
from .._policy.input.quote import counted, first_named
from .._policy.order.reserve import new_reserve
from .._policy.verdict import decide, handed_back, has_encrypted, undecrypted
from .._store.outage import Outage, Pauses
from .._store.protocol import Wake
from .._store.served_queues import ServedQueues, listed
from .._timers import wait_for_event, wait_until
from ..errors import InvalidOption, StoreError
from .exchange import Exchange
from .heartbeat import HeartbeatLoop, HeldLeases
from .needs import MissingKeys, UnknownTypes
from .process import Background, stopped_by_signals
from .processes import is_child
from .run import Phase, Run, Stop
from .runner import Runner
from .settings import WorkerSettings
from .slots import Slots
from .watch.loop_watch import watched_loop
from .watch.stuck import LONG, StuckWatch

logger = logging.getLogger("windlass.worker")

_QUICK = 0.005  # seconds: shorter tasks are claimed ahead, so that slots do not wait for the store
_REOPEN_AFTER, _LAST_REOPEN_AFTER = 0.5, 1.0
_VERSION = metadata.version("windlass")
_CLEANUP_TIMEOUT = 2.0
_NAMED_TASKS = 10  # in a line of the log
_LEAVE_TIMEOUT = 5.0  # seconds at least for the ends of lifespans


class Worker(Background):
    """Runs an app's tasks until it is stopped, or for a block: `async with app.worker():`. For one run only.

    `open_store` opens the store and stores what the app declares; `new_keeper` takes a name and a lease.
    """

    def __init__(  # noqa: PLR0913, PLR0917  made in one place, by the app
        self,
        store: ObservedStore,
        types: KnownTypes,
        settings: WorkerSettings,
        open_store: Callable[[], Awaitable[None]],
        backoff_of: Callable[[str], Delay],
        new_keeper: Callable[..., Keeper],
        hooks: Hooks,
        lifespans: Lifespans,
    ) -> None:
        self.settings = settings
        used = {spec.defaults.queue for spec in types.declared.values()} or {DEFAULT_QUEUE}
        self.served = ServedQueues(store, settings.queues or tuple(sorted(used)), is_open=settings.all_queues)
        self._reserve = new_reserve(settings.slots, settings.reserve)
        self.levels = self._reserve.levels
        self.name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self._store = store
        self._types = types.declared
        self._with_secrets = types.with_secrets
        self._open_store = open_store
        self._backoff_of = backoff_of
        self._new_keeper = new_keeper
        self._hooks = hooks
        self._lifespans = lifespans
        self._recorder = store.history
        self._key_ids = key_ids_of(store)
        self._keeper: Keeper | None = None
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self.changed = asyncio.Event()  # a run ended, settlements were confirmed, or `stop` was called
        self._mean_seconds = _QUICK  # of recent runs
        self._silent = False  # tasks were stopped for lack of heartbeats: none has reached the store since
        self._stalled = False  # no run has ended since the last heartbeat
        self.unknown_types = UnknownTypes(types.declared)
        self._missing_keys = MissingKeys()
        self.held = HeldLeases()
        self.stuck = StuckWatch(store, settings.slots)
        self._stop_by = 0.0  # the end of the grace, once it stops
        self.outage = Outage()  # what all loops of this worker know of the store
        self.crowd = 1  # workers of the store, as its last reply to a heartbeat said
        self.ran = 0
        self.adapt_runner: Callable[[Runner], object] = lambda _: None  # a test's

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it serves; with `all_queues`, those it has found so far."""
        return self.served.names

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    # -- run and stop --------------------------------------------------------------------------------

    def stop(self, *, at_once: bool = False) -> None:
        """Stop claiming and let running tasks finish; `at_once`, or a second call: do not wait for them.

        In the ends of lifespans it cuts these off. Call it on the event loop.
        """
        if at_once or self._stop.is_set():
            self._at_once.set()
        self._stop.set()
        self.changed.set()

    def _stop_to_recycle(self, why: str) -> None:
        logger.info("stopping: %s", why)
        self.stop()

    async def run(self, *, signals: bool = False, ready: Callable[[], None] | None = None) -> None:
        """Run tasks until stopped or, with `drain`, until none is ready.

        `signals`: stop on SIGTERM and SIGINT. `ready` is called once the worker claims tasks.
        """
        if is_child():
            raise InvalidOption(
                "a child process started a worker while importing the program; start workers below "
                '`if __name__ == "__main__":`'
            )
        with stopped_by_signals(asyncio.get_running_loop(), self.stop) if signals else nullcontext():
            if signals:  # this process is the worker's own
                self.stuck.recycle = self.stuck.recycle or self._stop_to_recycle
            self._heartbeat = HeartbeatLoop(self._store, self)
            if await self._until_open():
                around = self.held.drop, self._hooks, self._lifespans
                runner = self._runner = Runner(self._store, self._with_secrets, self.settings, *around)
                self.adapt_runner(runner)
                self._slots = Slots(self.settings.slots, runner.outcome, self._finish, self._heartbeat.report)
                self.stuck.running = self._slots.running.values
                self._exchange = Exchange(self._store, self)
                await self._serve(ready)

    async def _until_open(self) -> bool:
        """Open the store and the session, retrying while it is not available; False if stopped meanwhile."""
        pauses = Pauses(self.outage, _REOPEN_AFTER, _LAST_REOPEN_AFTER)
        while not self._stop.is_set():
            try:
                await self._open_store()
                await self._heartbeat.open()
                if self.settings.all_queues:
                    await self.served.find()
            except StoreError as error:
                if not error.transient:
                    raise
                await wait_for_event(self._stop, pauses.failed(error))
            else:
                pauses.succeeded()
                return True
        return False

    async def _serve(self, ready: Callable[[], None] | None) -> None:
        self._heartbeat.start()
        try:
            with watched_loop(self.stuck):
                if not await self._lifespans.start(self._stop, self.stop):
                    return
                install_filter()  # by now the program has set up its logging
                self._log_ready()
                await self._work(ready)
        finally:
            await self._close()
        self._lifespans.raise_failure()

    async def _work(self, ready: Callable[[], None] | None) -> None:
        async with asyncio.TaskGroup() as group:
            listening = self.served.listen(self._on_wake, self.outage)
            needed = self._exchange.run(), listening, self.stuck.replace()
            loops = [group.create_task(one) for one in needed]
            if self.settings.all_queues:
                loops.append(group.create_task(self.served.keep_finding(self._exchange.claim_now)))
            if self.settings.keeper:
                self._keeper = self._new_keeper(name=self.name, lease=self.settings.lease, outage=self.outage)
                loops.append(group.create_task(self._keeper.run()))
            if self._recorder is not None:
                loops.append(group.create_task(self._recorder.run()))
            if ready is not None:
                ready()
            if self.settings.drain:
                await self._exchange.until_drained(lambda: not self._slots.occupied)
            else:
                await self._stop.wait()
            await self._wind_down()
            for one in loops:
                one.cancel()

    def _log_ready(self) -> None:
        promise = self._store.promise
        logger.info(
            "worker %s is ready: %s, queues %s; its store is %s: %s",
            self.name,
            counted(self.settings.slots, "slot"),
            "all" if self.settings.all_queues else listed(self.queues),
            promise.durability,
            promise.why,
            extra={"durability": str(promise.durability)},
        )

    async def _wind_down(self) -> None:
        """Stop claiming, hand back what has not started, wait for running tasks, settle all."""
        self._exchange.claiming = False
        self._release_unstarted()
        grace = self.settings.grace.total_seconds()
        self._stop_by = monotonic() + grace
        if busy := len(self._slots.running):
            logger.info("stopping: waiting up to %g s for %s to finish", grace, counted(busy, "running task"))
        await wait_until(lambda: not self._slots.running or self._at_once.is_set(), self.changed, grace)
        if self._slots.running:
            self._slots.stop_all(Stop.SHUTDOWN)
            # Cancelled handlers may clean up; threads cannot be interrupted, and are abandoned.
            await wait_until(lambda: not self._slots.running, self.changed, _CLEANUP_TIMEOUT)
            for run in self._slots.running.values():
                if run.phase is not Phase.SETTLED and not run.is_lost:
                    self._settle(run.task, run.stop_outcome(), perf_counter() - run.started, run)
            self._slots.abandon()
        lease = self.settings.lease.total_seconds()  # after which tasks are rescued anyway
        if not await wait_until(lambda: not self._exchange.is_busy, self.changed, lease):
            left = counted(self._exchange.unsettled, "task")
            logger.error("could not settle %s; they will be rescued and run again", left)

    async def _close(self) -> None:
        hurries, self._at_once = self._at_once.is_set(), asyncio.Event()  # a further call cuts the ends off
        await self._slots.close()
        for close in (self._runner.close, self._lifespans.end):  # within what is left of the grace
            left = 0.0 if hurries else self._stop_by - monotonic()
            await close(max(left, _LEAVE_TIMEOUT), self._at_once)
        await self._heartbeat.stop()
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                # Hands back tasks whose claim was granted but never reached us, before the session ends.
                await self._heartbeat.open()
                await self._store.remove(Session, self.held.session)
        logger.info("worker %s has stopped; it ran %s", self.name, counted(self.ran, "task"))

    def _on_wake(self, wake: Wake) -> None:
        if wake is Wake.READY:
            self._exchange.wake()

    # -- called by the exchange ------------------------------------------------------------------------

    def room(self, level: Level | None, requested: Mapping[Level | None, int]) -> int:
        """Return how many tasks of a level, or any (None), to claim beside those requested already.

        That is the free slots; while tasks are quick, as many again ahead.
        """
        if self._silent or self._exchange.unsettled > 4 * (slots := self.settings.slots):
            return 0
        if self._reserve.reserved:  # none ahead: they might wait for a slot of their own level
            return self._reserve.room(level, self._slots.by_level(), requested)
        ahead = slots if self._mean_seconds < _QUICK and not self._stalled else 0
        return slots + ahead - self._slots.occupied - requested[None]

    def accept(self, claimed: Sequence[Claimed]) -> None:
        """Run claimed tasks; hand back those that cannot run here."""
        known: list[tuple[Task, HandlerSpec]] = []
        for one in claimed:
            spec = self._types.find(one.task.type)
            if spec is None:
                self._hand_back(one.task)
            elif has_encrypted(one.task):
                self._settle(one.task, undecrypted(self._key_ids, one.task.payload, one.task.next), 0.0)
            elif self._silent or not self._exchange.claiming:
                self._settle(one.task, Interrupted(), 0.0)
            else:
                known.append((one.task, spec))
        self._slots.add(known)

    def _hand_back(self, task: Task) -> None:
        self.unknown_types.note(task)
        lease = Lease(task.id, task.fence)
        self._exchange.settle(Settlement(lease=lease, verdict=handed_back(task), outcome="unhandled"))

    def _finish(self, run: Run, outcome: Outcome, seconds: float) -> None:
        self.changed.set()
        self._stalled = False
        if seconds >= LONG:
            self.stuck.ended(run, seconds)
        if run.is_lost:
            return
        self.ran += 1
        self._mean_seconds += (seconds - self._mean_seconds) * 0.05
        if run.phase is Phase.SETTLED:
            self._exchange.settled_elsewhere()
            return
        self._settle(run.task, outcome, seconds, run)

    def _release_unstarted(self) -> None:
        for task in self._slots.take_unstarted():
            self._settle(task, Interrupted(), 0.0)

    def _settle(self, task: Task, outcome: Outcome, seconds: float, run: Run | None = None) -> None:
        if type(outcome) is Locked:
            self._missing_keys.warn(task, outcome.keys)
        if run is not None and run.stop is Stop.CANCEL:
            task = replace(task, cancel_requested=True)
        try:
            secrets = () if run is None else run.secrets
            verdict = decide(task, outcome, self._backoff_of(task.type), random.random(), secrets)
        except Exception as error:
            # The task must be settled all the same, or its lease would be held for ever.
            logger.exception("cannot decide the outcome of task %s; burying it", task.id)
            verdict = Bury(error=describe(error))
        self._exchange.settle(
            Settlement(
                lease=Lease(task.id, task.fence),
                verdict=verdict,
                outcome=name_of(outcome),
                duration=seconds,
                progress=None if run is None else run.progress,
                notes=None if run is None else run.encoded_notes(),
            )
        )

    def describe(self) -> WorkerRecord:
        return WorkerRecord(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=() if self.settings.all_queues else self.queues,
            all_queues=self.settings.all_queues,
            slots=self.settings.slots,
            busy=len(self.held),
            version=_VERSION,
            types=self._types.handled,
            stuck=self.stuck.described(),
        )

    def on_reply(self, session: str, reply: HeartbeatReply) -> None:
        if session != self.held.session:
            return  # the session has ended
        if not reply.alive:
            self._start_over()
            return
        self.crowd = reply.workers
        if self._keeper is not None:
            self._keeper.note_crowd(self.crowd)
        for request in reply.cancel:
            self._slots.cancel(request)
        for lease in reply.lost:
            if self._slots.lose(lease):
                logger.warning("lost the lease of task %s; stopping its run", lease.task_id)
                self.held.drop([lease])
        if self._silent:
            self._silent = False
            self._exchange.wake()
        if self._stalled:  # tasks claimed ahead wait behind a long run: other workers may be free
            self._release_unstarted()
        self._stalled = bool(self._slots.inbox) or self._stalled

    def on_silence(self, seconds: float) -> None:
        """Stop all tasks before the store, without a heartbeat for so long, gives them to other workers."""
        if self._slots.occupied:
            logger.error("no heartbeat for %.1f s; stopping %s", seconds, self._names_of_tasks())
        self._release_unstarted()
        self._slots.stop_all(Stop.SILENT)
        self._silent = True

    def _start_over(self) -> None:
        """Drop all tasks, which other workers may have by now, and open a new session."""
        stopping = f"stopping {self._names_of_tasks()} and " if self._slots.occupied else ""
        logger.error("session %s has expired; %sopening a new one", self.held.session, stopping)
        self._slots.take_unstarted()
        self._slots.stop_all(Stop.FENCED)
        self.held.renew()
        self._silent = True
        self._heartbeat.send_now()

    def _names_of_tasks(self) -> str:
        """Return the number of tasks that run or wait for a slot, and the ids of the first of them."""
        ids = self._slots.task_ids
        return f"{counted(len(ids), 'task')} ({first_named(ids, _NAMED_TASKS)})"
