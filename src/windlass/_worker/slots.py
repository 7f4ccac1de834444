"""Slots: run a bounded number of tasks at once.

A slot is an asyncio task that takes claimed tasks from an inbox and awaits their handlers itself, so that no
asyncio task, timer or timeout is made per task. One timer watches all deadlines.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import chain
from time import perf_counter

from msgspec.structs import replace

from .._handler.failure import whereabouts
from .._handler.spec import HandlerSpec
from .._model.lease import CancelRequest, Lease
from .._model.outcome import Failed, Outcome
from .._model.queue import Level, level_of
from .._model.task import Error, Progress, Task, TaskId
from .._policy.secrets.fields import merged
from .._timers import Timer
from .run import Run, Stop

logger = logging.getLogger("windlass.worker")

_CLOSE_TIMEOUT = 1.0  # seconds to wait for handlers that ignore their cancellation


class Slots:
    """Runs claimed tasks, at most `number` at once.

    `finish` is called with every run, its outcome and its seconds; if it `is_lost`, the outcome is void.
    """

    def __init__(
        self,
        number: int,
        execute: Callable[[Run], Awaitable[Outcome]],
        finish: Callable[[Run, Outcome, float], None],
        report: Callable[[Run, Progress], None],
    ) -> None:
        self.number = number
        self.inbox: deque[tuple[Task, HandlerSpec]] = deque()
        self.running: dict[TaskId, Run] = {}
        self._execute = execute
        self._finish = finish
        self._report = report
        self._idle: deque[asyncio.Future[None]] = deque()  # slots that wait to be woken
        self._slots: set[asyncio.Task[None]] = set()
        self._waking = False
        self._closing = False
        self._deadline_timer = Timer(self._stop_overdue)

    @property
    def occupied(self) -> int:
        """Tasks that run or wait for a slot."""
        return len(self.inbox) + len(self.running)

    @property
    def task_ids(self) -> list[TaskId]:
        """The ids of the same tasks, those that run first."""
        return [*self.running, *(task.id for task, _ in self.inbox)]

    def by_level(self) -> Counter[Level]:
        """Count the same by level of priority."""
        tasks = chain((task for task, _ in self.inbox), (run.task for run in self.running.values()))
        return Counter(level_of(task.priority) for task in tasks)

    def add(self, tasks: Iterable[tuple[Task, HandlerSpec]]) -> None:
        """Run these tasks as slots become free."""
        self.inbox.extend(tasks)
        self._wake_one()

    def take_unstarted(self) -> list[Task]:
        tasks = [task for task, _ in self.inbox]
        self.inbox.clear()
        return tasks

    def cancel(self, request: CancelRequest) -> None:
        """Ask a task's run to stop, or do not start it."""
        run = self.running.get(request.task_id)
        if run is not None:
            run.cancel = request
            run.request_stop(Stop.CANCEL)
            return
        for index, (task, spec) in enumerate(self.inbox):
            if task.id == request.task_id:
                self.inbox[index] = (replace(task, cancel_requested=True), spec)

    def lose(self, lease: Lease) -> bool:
        """Stop the run of a lost lease, or do not start it; return whether there was one."""
        run = self.running.get(lease.task_id)
        if run is not None and run.lease == lease:
            run.request_stop(Stop.FENCED)
            return run.stop is Stop.FENCED
        kept = [(task, spec) for task, spec in self.inbox if Lease(task.id, task.fence) != lease]
        lost = len(kept) < len(self.inbox)
        if lost:
            self.inbox = deque(kept)
        return lost

    def stop_all(self, why: Stop) -> None:
        for run in list(self.running.values()):
            run.request_stop(why)

    def abandon(self) -> None:
        """Stop waiting for runs that have not ended, and fence them."""
        for run in self.running.values():
            run.stop = Stop.FENCED
        self.running.clear()
        for slot in self._slots:
            slot.cancel()

    async def close(self) -> None:
        """End the slots. Runs that have not ended are abandoned."""
        self._closing = True
        self._deadline_timer.cancel()
        self.abandon()
        if self._slots:
            await asyncio.wait(self._slots, timeout=_CLOSE_TIMEOUT)

    # -- one slot ------------------------------------------------------------------------------------

    async def _slot(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not self._closing:
            self._waking = False
            while self.inbox:
                task, spec = self.inbox.popleft()
                if self.inbox:
                    self._wake_one()
                await self._run(task, spec, me)
            if not self._closing:
                await self._wait(me)

    async def _wait(self, me: "asyncio.Task[None]") -> None:
        """Wait to be woken. A late cancellation of a handler that has ended must not end the slot."""
        woken = asyncio.get_running_loop().create_future()
        self._idle.append(woken)
        try:
            await woken
        except asyncio.CancelledError:
            if self._closing:
                raise
            with suppress(ValueError):
                self._idle.remove(woken)
            await _absorb_cancellation(me)

    async def _run(self, task: Task, spec: HandlerSpec, me: "asyncio.Task[None]") -> None:
        if spec.defaults.secret and task.secret != spec.defaults.secret:  # its sender may not know the type
            task = replace(task, secret=merged(task.secret, spec.defaults.secret))
        run = self.running[task.id] = Run(task, spec, me, self._report, self._stop_overdue_at)
        try:
            try:
                outcome = await self._execute(run)
            except Exception as error:  # noqa: BLE001 - its message may hold a secret: log frames only
                # An error in the worker itself must not leave the task unsettled.
                logger.error("internal error while running task %s: %s", task.id, whereabouts(error))  # noqa: TRY400
                outcome = Failed(
                    error=Error(type=type(error).__name__, message="internal error in the worker")
                )
            if me.cancelling():
                await _absorb_cancellation(me)
        finally:
            if self.running.get(task.id) is run:
                del self.running[task.id]
        self._finish(run, outcome, perf_counter() - run.started)

    def _wake_one(self) -> None:
        """Wake or make one slot, which wakes the next. Handlers that never await thus need only one."""
        if self._waking or not self.inbox:
            return
        if self._idle:
            self._waking = True
            self._idle.popleft().set_result(None)
        elif len(self._slots) < self.number:
            self._waking = True
            slot = asyncio.get_running_loop().create_task(self._slot(), name="windlass-slot")
            self._slots.add(slot)
            slot.add_done_callback(self._slots.discard)

    # -- deadlines -----------------------------------------------------------------------------------

    def _stop_overdue_at(self, moment: float) -> None:
        self._deadline_timer.at(asyncio.get_running_loop().time() + max(moment - perf_counter(), 0))

    def _stop_overdue(self) -> None:
        now = perf_counter()
        for run in list(self.running.values()):
            if run.deadline <= now:
                if run.stop is None:
                    run.request_stop(Stop.TIMEOUT)
                else:
                    run.interrupt_now()
        nearest = min((run.deadline for run in self.running.values()), default=float("inf"))
        if nearest < float("inf"):
            self._stop_overdue_at(nearest)


async def _absorb_cancellation(me: "asyncio.Task[None]") -> None:
    """Clear the cancellation of a run that has ended, so that it does not cancel its slot."""
    if not me.cancelling():
        return
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # delivers a cancellation that is still pending
    while me.cancelling():
        me.uncancel()
