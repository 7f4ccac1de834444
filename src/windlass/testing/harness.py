"""Run an app's tasks in a test: the real engine on a memory store, with a clock that the test advances."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from .._handler.lifespan import Lifespans
from .._handler.names import function_name
from .._keeper.keeper import cancel_expired
from .._keeper.schedules import Ticker
from .._model.filter import Dimension, Filter
from .._model.schedule import Schedule
from .._model.state import State
from .._model.task import Task
from .._policy.input.options import parse_duration
from .._policy.ticks import ticks
from .._store.protocol import all_records
from .._worker.settings import WorkerSettings
from ..app import App
from ..errors import InvalidOption
from ..tasktype import TaskType
from .clock import ManualClock
from .harness_store import HarnessStore

_MAX_ROUNDS = 10_000
_MAX_TICKS = 10_000
_LEAVE_TIMEOUT = 10.0


class Harness:
    """An app on a memory store whose tasks run only in `run_until_idle`."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self._overrides: dict[Callable[..., Any], Callable[..., Any]] = {}

    def run_until_idle(self, *, raise_errors: bool = True, slots: int = 1) -> int:
        """Run every due task and its successors until none is left; return the number of runs.

        The first exception that a handler raises is raised here unchanged, unless `raise_errors` is
        False: then the task is retried or buried as in production.
        """
        return asyncio.run(self.arun_until_idle(raise_errors=raise_errors, slots=slots))

    async def arun_until_idle(self, *, raise_errors: bool = True, slots: int = 1) -> int:
        """`run_until_idle` for async tests."""
        await self.app.open()  # Stores the declared schedules.
        lifespans = self.app.hooks.lifespans()
        await lifespans.start()
        try:
            return await self._run_until_idle(lifespans, slots, raise_errors=raise_errors)
        finally:
            await lifespans.end(_LEAVE_TIMEOUT)

    async def _run_until_idle(self, lifespans: Lifespans, slots: int, *, raise_errors: bool) -> int:
        total = 0
        for _ in range(_MAX_ROUNDS):
            await Ticker(self.app.store).fire_due()
            await self.app.store.promote(1_000)
            await cancel_expired(self.app.store)
            queues = await self.app.store.count(Filter(states=(State.READY,)), [Dimension.QUEUE])
            if not queues:
                return total
            names = tuple(count.values[0] for count in queues)
            ran = await self._drain(names, lifespans, slots, raise_errors=raise_errors)
            if not ran:  # Only paused queues have ready tasks.
                return total
            total += ran
        raise AssertionError(
            f"still not idle after {_MAX_ROUNDS:,} rounds; do tasks enqueue themselves for ever?"
        )

    def advance(self, by: timedelta | float | str) -> None:
        """Advance the clock, firing every tick of a schedule on the way, at its time.

        What becomes due, tasks of ticks included, runs in the next `run_until_idle`; so a schedule with
        overlap="skip" fires once, unless the clock is advanced tick by tick.
        """
        until = self.clock.now() + parse_duration(by, "advance")
        with ThreadPoolExecutor(1) as beside:  # The test may have an event loop.
            beside.submit(asyncio.run, self._advance(until)).result()

    def override(self, dependency: Callable[..., Any], function: Callable[..., Any]) -> None:
        """Use this function in place of a dependency until the end of the harness.

        It may be of any kind that `Depends` takes, and have dependencies of its own. Raises InvalidOption if
        no task type has the dependency, or one of them cannot have the override.
        """
        users = [spec for spec in self.app.types.values() if spec.plan.has(dependency)]
        if not users:
            raise InvalidOption(f"no task type of this app depends on {function_name(dependency)}")
        overrides = {**self._overrides, dependency: function}
        for spec in users:
            if spec.process:
                raise InvalidOption(
                    f"{spec.name!r} depends on {function_name(dependency)} but runs in a child process, "
                    f"where overrides do not apply"
                )
            spec.new_plan(overrides=overrides)
        self._overrides = overrides
        self.app.hooks.override(overrides)

    async def _advance(self, until: datetime) -> None:
        await self.app.open()  # Stores the declared schedules.
        ticker = Ticker(self.app.store)
        await ticker.fire_due()  # Begins them.
        for instant in [*await self._ticks(until), until]:
            self.clock.advance(instant - self.clock.now())
            await ticker.fire_due()

    async def _ticks(self, until: datetime) -> list[datetime]:
        """Return the instants of all ticks from now on, in order."""
        now = self.clock.now()
        schedules = [one for one in await all_records(self.app.store, Schedule) if not one.paused]
        found = [islice(ticks(one, now, until), _MAX_TICKS + 1) for one in schedules]
        instants = [instant for one in found for instant in one]
        if len(instants) > _MAX_TICKS:
            raise AssertionError(
                f"more than {_MAX_TICKS:,} ticks are due until {until}; advance by less, or pause schedules "
                f"that this test is not about: app.sync_operator.schedules.pause(name)"
            )
        return sorted(set(instants))

    def tasks(self, of: TaskType[Any, Any, Any] | str | None = None, *states: State) -> list[Task]:
        """Return the tasks in the store, oldest first: of one type, in these states, or all."""
        name = of.name if isinstance(of, TaskType) else of
        where = Filter(types=None if name is None else (name,), states=states or None)
        return [*self.app.sync_operator.every(where)]

    async def _drain(
        self, queues: tuple[str, ...], lifespans: Lifespans, slots: int, *, raise_errors: bool
    ) -> int:
        errors: list[BaseException] = []
        settings = WorkerSettings(queues=queues, slots=slots, drain=True, keeper=False, name="test")

        loop = asyncio.get_running_loop()

        def note(_: Task, error: BaseException) -> None:
            errors.append(error)
            if raise_errors:
                loop.call_soon_threadsafe(partial(worker.stop, at_once=True))

        worker = self.app.worker(settings, on_error=note, lifespans=lifespans.borrowed())
        await worker.run()
        if errors and raise_errors:
            raise errors[0]
        return worker.ran


@contextmanager
def harness(app: App) -> Iterator[Harness]:
    """Run a block with the app on a new memory store and a manual clock; restore its own store afterwards."""
    clock = ManualClock()
    before = app.use_store(HarnessStore(clock=clock))
    try:
        yield Harness(app, clock)
    finally:
        app.hooks.override({})
        app.use_store(before)
