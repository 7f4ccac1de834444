"""The worker: one session, its slots, its exchange with the store and its heartbeat, from start to stop."""

import asyncio
import contextlib
import logging
import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib import metadata
from typing import Protocol

from msgspec.structs import replace

from .._handler.failure import describe
from .._handler.spec import HandlerSpec
from .._keeper.keeper import Keeper
from .._model.lease import CLOSE_TIMEOUT, Claimed, HeartbeatReply, Lease, ProgressReport
from .._model.outcome import Interrupted, Outcome, Unhandled, name_of
from .._model.queue import Level
from .._model.record import Session
from .._model.record import Worker as WorkerRecord
from .._model.task import DEFAULT_QUEUE, Progress, Task
from .._model.verdict import Bury, Settlement, Verdict
from .._policy.backoff import Delay
from .._policy.order.reserve import new_reserve
from .._policy.verdict import decide, unhandled_for
from .._store.protocol import Store, Wake
from .._store.wakes import listen_for_wakes
from .._timers import wait_for_event
from ..errors import InvalidOption, StoreError
from .exchange import Exchange
from .heartbeat import Heart
from .held_leases import Holdings
from .processes import is_child
from .run import Phase, Run, Stop
from .runner import Runner
from .settings import WorkerSettings
from .slots import Slots
from .stop_signals import stopped_by_signals

logger = logging.getLogger("windlass.worker")

__all__ = ["Worker", "WorkerSettings"]

_QUICK = 0.005  # tasks this short are claimed ahead, so that slots do not wait for the store
_OPEN_AGAIN = 0.5
_VERSION = metadata.version("windlass")
_CLEANING_UP = 2.0


class Program(Protocol):
    """What a worker serves: an app, seen from below."""

    types: Mapping[str, HandlerSpec]

    @property
    def store(self) -> Store:
        """Where its tasks are kept."""
        ...

    async def open(self) -> None:
        """Open the store and tell it what the program declares."""
        ...

    def backoff_of(self, type_name: str) -> Delay:
        """How long tasks of a type wait before they are tried again."""
        ...

    def keeper(self, *, name: str, lease: timedelta) -> Keeper:
        """Who keeps its house."""
        ...


class Worker:
    """Runs an app's tasks until told to stop. Make a new one for each run."""

    def __init__(
        self,
        program: Program,
        settings: WorkerSettings,
        *,
        on_error: Callable[[Task, BaseException], None] | None = None,
    ) -> None:
        self.settings = settings
        self.queues = settings.queues or queues_of(program.types)
        self._reserve = new_reserve(settings.slots, settings.reserve)
        self.levels = self._reserve.levels
        self.name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self._program = program
        self._store = program.store
        self._types = program.types
        self._on_error = on_error
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._moved = asyncio.Event()  # a run ended, settlements were confirmed, or a stop was asked for
        self._mean = _QUICK  # of recent run times, in seconds
        self._unheard = False  # the leases were given up, and no heartbeat has got through since
        self._stalled = False  # no run has ended between two heartbeats
        self.holdings = Holdings()
        self.ran = 0

    # -- from outside --------------------------------------------------------------------------------

    def stop(self, *, at_once: bool = False) -> None:
        """Stop claiming and finish; `at_once` without waiting for running tasks. To be called on the loop."""
        if at_once or self._stop.is_set():
            self._at_once.set()
        self._stop.set()
        self._moved.set()

    async def run(self, *, signals: bool = False, ready: Callable[[], None] | None = None) -> None:
        """Work until stopped or, draining, until nothing is ready.

        `signals` makes SIGTERM and SIGINT stop it. `ready` is called once tasks will be claimed.
        """
        if is_child():
            raise InvalidOption(
                "a worker was started while a child process loaded the program it belongs to; "
                'start it below `if __name__ == "__main__":`'
            )
        loop = asyncio.get_running_loop()
        self._loop = loop
        with stopped_by_signals(loop, self.stop) if signals else contextlib.nullcontext():
            if await self._until_open():
                self._make_ready(loop)
                await self._serve(ready)

    # -- the whole -----------------------------------------------------------------------------------

    def _make_ready(self, loop: asyncio.AbstractEventLoop) -> None:
        self._runner = Runner(self._store, loop, self.settings, self.holdings.dropped, self._on_error)
        self._slots = Slots(self.settings.slots, self._runner.outcome, self._finish, self._report)
        poll, most = self.settings.poll.total_seconds(), self.settings.slots  # of each of the two claims
        self._exchange = Exchange(self._store, self.holdings, self.queues, self, poll=poll, most=most)

    async def _until_open(self) -> bool:
        """Open store and session, waiting for a store that is not there yet; False if stopped meanwhile."""
        self._heart = Heart(
            self._store, self.holdings, self, interval=self.settings.heartbeat, lease=self.settings.lease
        )
        while not self._stop.is_set():
            try:
                await self._program.open()
                await self._heart.open()
            except StoreError as error:
                if not error.transient:
                    raise
                logger.warning("the store is not available, trying again: %s", error)
                await wait_for_event(self._stop, _OPEN_AGAIN * (1 + random.random()))
            else:
                return True
        return False

    async def _serve(self, ready: Callable[[], None] | None) -> None:
        self._heart.start()
        promise = self._store.promise
        queues = ", ".join(self.queues)
        logger.info("worker %s serves %s with %d slots", self.name, queues, self.settings.slots)
        told = f"what its store acknowledges is {promise.durability}: {promise.why}"
        logger.info("%s", told, extra={"durability": str(promise.durability)})
        try:
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(self._exchange.run()), group.create_task(self._listen())]
                if self.settings.keeper:
                    loops.append(group.create_task(self._keep()))
                if ready is not None:
                    ready()
                await self._until_told()
                await self._wind_down()
                for one in loops:
                    one.cancel()
        finally:
            await self._let_go()

    async def _until_told(self) -> None:
        if self.settings.drain:
            await self._until(lambda: self._stop.is_set() or self._is_drained())
        else:
            await self._stop.wait()

    def _is_drained(self) -> bool:
        return self._exchange.came_up_empty and not self._slots.occupied and not self._exchange.is_busy

    async def _wind_down(self) -> None:
        """Claim no more, hand back what has not started, give the rest its grace, settle all. (D11)"""
        self._exchange.claiming = False
        for task in self._slots.take_unstarted():
            self._settle(task, Interrupted(), 0.0)
        grace = self.settings.grace.total_seconds()
        if self._slots.running:
            logger.info("stopping: %d tasks are given %g s to finish", len(self._slots.running), grace)
        await self._until(lambda: not self._slots.running or self._at_once.is_set(), grace)
        if self._slots.running:
            self._slots.stop_all(Stop.SHUTDOWN)
            # Cancelled handlers may need a moment to clean up; threads cannot be stopped, and stay behind.
            await self._until(lambda: not self._slots.running, _CLEANING_UP)
            for run in self._slots.abandon():
                if run.phase is not Phase.SETTLED:
                    self._settle(run.task, Interrupted(), 0.0)
        await self._settle_all()

    async def _settle_all(self) -> None:
        """Until every settlement is confirmed; what takes longer than a lease is rescued."""
        lease = self.settings.lease.total_seconds()
        if not await self._until(lambda: not self._exchange.is_busy, lease):
            left = self._exchange.unsettled
            logger.error("%d settlements could not be delivered; their tasks will be rescued", left)

    async def _until(self, condition: Callable[[], bool], seconds: float = float("inf")) -> bool:
        """Wait for a condition that only changes when something moves; says whether it came true in time."""
        deadline = self._loop.time() + seconds
        while not condition():
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            self._moved.clear()
            await wait_for_event(self._moved, None if left == float("inf") else left)
        return True

    async def _let_go(self) -> None:
        await self._slots.close()
        await self._runner.close()
        await self._heart.stop()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                # What a lost reply may have granted was never run: it is handed back before the session ends.
                await self._heart.open()
                await self._store.remove(Session, self.holdings.session)
        logger.info("worker %s has stopped after %d tasks", self.name, self.ran)

    async def _listen(self) -> None:
        """Turn the store's hints into looks; without them there is the poll."""

        def take(wake: Wake) -> None:
            if wake is Wake.READY:
                self._exchange.wake()

        await listen_for_wakes(self._store, self.queues, take, logger)

    async def _keep(self) -> None:
        await self._program.keeper(name=self.name, lease=self.settings.lease).run()

    # -- tasks in and out ----------------------------------------------------------------------------

    def room(self, level: Level | None, asked: Mapping[Level | None, int]) -> int:
        """How many more tasks can be claimed: free slots, and a few ahead while tasks are quick."""
        slots = self.settings.slots
        if self._unheard or self._exchange.unsettled > 4 * slots:
            return 0
        if self._reserve.reserved:  # none ahead: what waits for a slot would need one of its kind
            return self._reserve.room(level, self._slots.by_level(), asked)
        ahead = slots if self._mean < _QUICK and not self._stalled else 0
        return slots + ahead - self._slots.occupied - asked[None]

    def deliver(self, claimed: Sequence[Claimed]) -> None:
        """Take in claimed tasks; what cannot run here goes straight back."""
        known: list[tuple[Task, HandlerSpec]] = []
        for one in claimed:
            declared = self._types.get(one.task.type)
            if declared is None:
                self._unhandled(one.task)
            elif self._unheard or not self._exchange.claiming:
                self._settle(one.task, Interrupted(), 0.0)
            else:
                known.append((one.task, declared))
        self._slots.add(known)

    def confirmed(self) -> None:
        """Settlements have been applied."""
        self._moved.set()

    def _unhandled(self, task: Task) -> None:
        last = task.type.rpartition(".")[2]
        alike = [name for name in self._types if name.rpartition(".")[2] == last]
        hint = f" (there is one for {alike[0]!r}: was the task enqueued by a script?)" if alike else ""
        logger.warning(
            "no handler for %r here%s; task %s is put back for another worker", task.type, hint, task.id
        )
        self._settle(task, Unhandled(unhandled_for(task)), 0.0)

    def _finish(self, run: Run, outcome: Outcome, seconds: float) -> None:
        self._moved.set()
        self._stalled = False
        if run.stop is Stop.FENCED and run.phase is not Phase.SETTLED:
            return  # its lease is another's
        self.ran += 1
        self._mean += (seconds - self._mean) * 0.05
        if run.phase is Phase.SETTLED:
            self._exchange.settled_elsewhere()
            return
        cancelled = run.stop is Stop.CANCEL
        self._settle(replace(run.task, cancel_requested=True) if cancelled else run.task, outcome, seconds)

    def _settle(self, task: Task, outcome: Outcome, seconds: float) -> None:
        self._exchange.settle(
            Settlement(
                lease=Lease(task.id, task.fence),
                verdict=self._decide(task, outcome),
                outcome=name_of(outcome),
                duration=seconds,
            )
        )

    def _decide(self, task: Task, outcome: Outcome) -> Verdict:
        try:
            return decide(task, outcome, self._program.backoff_of(task.type), random.random())
        except Exception as error:
            # The task must be settled all the same, or its lease would be held for ever.
            logger.exception("nobody can say what shall become of task %s; it is buried", task.id)
            return Bury(error=describe(error))

    def _report(self, run: Run, progress: Progress) -> None:
        self._heart.report(ProgressReport(run.lease, progress))

    # -- from the heart ------------------------------------------------------------------------------

    def describe(self) -> WorkerRecord:
        """What the store should know about this worker."""
        return WorkerRecord(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self.queues,
            slots=self.settings.slots,
            busy=len(self.holdings),
            version=_VERSION,
        )

    def on_pulse(self, session: str, pulse: HeartbeatReply) -> None:
        """Hear the store's answer to a heartbeat."""
        self._on_loop(self._on_pulse, session, pulse)

    def on_silence(self, seconds: float) -> None:
        """Hear that no heartbeat gets through."""
        self._on_loop(self._on_silence, seconds)

    def _on_loop(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(callback, *args)

    def _on_pulse(self, session: str, pulse: HeartbeatReply) -> None:
        if session != self.holdings.session:
            return  # news of a session that has ended
        if not pulse.alive:
            self._start_over()
            return
        for task_id in pulse.cancel:
            self._slots.cancel(task_id)
        for lease in pulse.lost:
            if self._slots.lose(lease):
                logger.warning("the lease of task %s is lost; its run is stopped", lease.task_id)
                self.holdings.dropped([lease])
        if self._unheard:
            self._unheard = False
            self._exchange.wake()
        self._hand_back_stalled()

    def _hand_back_stalled(self) -> None:
        """Tasks claimed ahead must not wait here behind a long run while other workers are free."""
        if self._stalled:
            for task in self._slots.take_unstarted():
                self._settle(task, Interrupted(), 0.0)
        self._stalled = bool(self._slots.inbox) or self._stalled

    def _on_silence(self, seconds: float) -> None:
        """Nobody has heard of us for so long that others may soon take over: stop before that. (D5)"""
        if self._slots.occupied:
            logger.error("no heartbeat for %.1f s: stopping %d tasks", seconds, self._slots.occupied)
        for task in self._slots.take_unstarted():
            self._settle(task, Interrupted(), 0.0)
        self._slots.stop_all(Stop.SILENT)
        self._unheard = True

    def _start_over(self) -> None:
        """The session is gone, and its tasks may be others': drop them all and open a new one."""
        logger.error("session %s was given up by the store; starting over", self.holdings.session)
        self._slots.take_unstarted()
        self._slots.stop_all(Stop.FENCED)
        self.holdings.renew()
        self._unheard = True
        self._heart.hurry()


def queues_of(types: Mapping[str, HandlerSpec]) -> tuple[str, ...]:
    """The queues that these types use; the default one if there are none."""
    return tuple(sorted({declared.defaults.queue for declared in types.values()} or {DEFAULT_QUEUE}))
