"""Slots: room for so many tasks at once, and the coroutines that fill it.

A slot pulls tasks from a local inbox and awaits their handlers itself: no asyncio task, timer or
timeout object is made for a task. One sweeper watches all deadlines.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import chain
from time import perf_counter
from typing import Protocol

from msgspec.structs import replace

from .._handler.failure import whereabouts
from .._handler.spec import HandlerSpec
from .._model.lease import Lease
from .._model.outcome import Failed, Outcome
from .._model.queue import Level, level_of
from .._model.task import Error, Progress, Task, TaskId
from .._timers import Timer
from .run import Run, Stop

logger = logging.getLogger("windlass.worker")


class Finish(Protocol):
    """What is called with each run's end."""

    def __call__(self, run: Run, outcome: Outcome, seconds: float) -> None:
        """A fenced run ends here as well; whatever came of it is to be dropped."""
        ...


_LAST_WORD = 1.0  # seconds that handlers which ignore their cancellation can hold up the end of their slots


class Slots:
    """Runs claimed tasks, at most `number` at once."""

    def __init__(
        self,
        number: int,
        execute: Callable[[Run], Awaitable[Outcome]],
        finish: Finish,
        report: Callable[[Run, Progress], None],
    ) -> None:
        self.number = number
        self.inbox: deque[tuple[Task, HandlerSpec]] = deque()
        self.running: dict[TaskId, Run] = {}
        self._execute = execute
        self._finish = finish
        self._report = report
        self._parked: deque[asyncio.Future[None]] = deque()
        self._slots: set[asyncio.Task[None]] = set()
        self._waking = False
        self._closing = False
        self._sweep = Timer(self._stop_overdue)

    @property
    def occupied(self) -> int:
        """Tasks that run or wait for a slot."""
        return len(self.inbox) + len(self.running)

    def by_level(self) -> Counter[Level]:
        """How many of them are of each level of priority."""
        tasks = chain((task for task, _ in self.inbox), (run.task for run in self.running.values()))
        return Counter(level_of(task.priority) for task in tasks)

    def add(self, tasks: Iterable[tuple[Task, HandlerSpec]]) -> None:
        """Take in claimed tasks."""
        self.inbox.extend(tasks)
        self._wake_one()

    def take_unstarted(self) -> list[Task]:
        """Empty the inbox: what has not started can be handed back."""
        tasks = [task for task, _ in self.inbox]
        self.inbox.clear()
        return tasks

    def cancel(self, task_id: TaskId) -> None:
        """Its task is to be cancelled: ask the run to stop, or never start it."""
        run = self.running.get(task_id)
        if run is not None:
            run.ask_to_stop(Stop.CANCEL)
            return
        for place, (task, declared) in enumerate(self.inbox):
            if task.id == task_id:
                self.inbox[place] = (replace(task, cancel_requested=True), declared)

    def lose(self, lease: Lease) -> bool:
        """The lease is another's: stop the run, or never start it; says whether there was one."""
        run = self.running.get(lease.task_id)
        if run is not None and run.lease == lease:
            run.ask_to_stop(Stop.FENCED)
            return run.stop is Stop.FENCED
        kept = [(task, d) for task, d in self.inbox if Lease(task.id, task.fence) != lease]
        lost = len(kept) < len(self.inbox)
        if lost:
            self.inbox = deque(kept)
        return lost

    def stop_all(self, why: Stop) -> None:
        """Ask every run to stop."""
        for run in list(self.running.values()):
            run.ask_to_stop(why)

    def abandon(self) -> list[Run]:
        """Stop waiting for runs that did not stop, and drop what comes of them; answers with them."""
        left = list(self.running.values())
        self.running.clear()
        for run in left:
            run.stop = Stop.FENCED
        for slot in self._slots:
            slot.cancel()
        return left

    async def close(self) -> None:
        """End the slots themselves. Runs still under way are abandoned."""
        self._closing = True
        self._sweep.cancel()
        self.abandon()
        if self._slots:
            await asyncio.wait(self._slots, timeout=_LAST_WORD)

    # -- one slot ------------------------------------------------------------------------------------

    async def _slot(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not self._closing:
            self._waking = False
            while self.inbox:
                task, declared = self.inbox.popleft()
                if self.inbox:
                    self._wake_one()
                await self._run(task, declared, me)
            if not self._closing:
                await self._park(me)

    async def _park(self, me: "asyncio.Task[None]") -> None:
        """Wait to be woken. A cancellation left behind by a handler that has ended does not end the slot."""
        ticket = asyncio.get_running_loop().create_future()
        self._parked.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if self._closing:
                raise
            with suppress(ValueError):
                self._parked.remove(ticket)
            await _absorb_cancellation(me)

    async def _run(self, task: Task, declared: HandlerSpec, me: "asyncio.Task[None]") -> None:
        run = self.running[task.id] = Run(task, declared, self._report, self._watch)
        run.slot = me
        try:
            outcome = await self._outcome(run)
            if me.cancelling():
                await _absorb_cancellation(me)
        finally:
            if self.running.get(task.id) is run:
                del self.running[task.id]
        self._finish(run, outcome, perf_counter() - run.started)

    async def _outcome(self, run: Run) -> Outcome:
        """What came of it. Nothing that goes wrong in here may leave a task without an end."""
        try:
            return await self._execute(run)
        except Exception as error:  # noqa: BLE001 - its message, or its context's, may hold a secret
            logger.error("running task %s failed in the worker: %s", run.task.id, whereabouts(error))  # noqa: TRY400
            return Failed(
                error=Error(type=type(error).__name__, message="the worker itself failed to run it")
            )

    def _wake_one(self) -> None:
        """Wake or make one slot; it wakes the next before it starts. A burst that never waits needs one."""
        if self._waking or not self.inbox:
            return
        if self._parked:
            self._waking = True
            self._parked.popleft().set_result(None)
        elif len(self._slots) < self.number:
            self._waking = True
            slot = asyncio.get_running_loop().create_task(self._slot(), name="windlass-slot")
            self._slots.add(slot)
            slot.add_done_callback(self._slots.discard)

    # -- deadlines -----------------------------------------------------------------------------------

    def _watch(self, run: Run) -> None:
        self._sweep_at(run.deadline)

    def _sweep_at(self, moment: float) -> None:
        self._sweep.at(asyncio.get_running_loop().time() + max(moment - perf_counter(), 0))

    def _stop_overdue(self) -> None:
        now = perf_counter()
        for run in list(self.running.values()):
            if run.deadline <= now:
                if run.stop is None:
                    run.ask_to_stop(Stop.TIMEOUT)
                else:
                    run.nudge()
        nearest = min((run.deadline for run in self.running.values()), default=float("inf"))
        if nearest < float("inf"):
            self._sweep_at(nearest)


async def _absorb_cancellation(me: "asyncio.Task[None]") -> None:
    """A run that was cancelled has ended: its slot must not be cancelled in its place."""
    if not me.cancelling():
        return
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # a cancellation not yet delivered comes out here
    while me.cancelling():
        me.uncancel()
