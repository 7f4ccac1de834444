"""Run an app's tasks in a test: the real engine, with a clock that the test advances."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from .._client.tasks.unserved import never_tell_enqueuer
from .._handler.lifespan import Lifespans
from .._handler.names import function_name
from .._keeper.due_tasks import cancel_expired
from .._keeper.schedules import Ticker
from .._model.filter import Dimension, Filter
from .._model.schedule import Schedule
from .._model.state import State
from .._model.task import Task
from .._policy.input.options import parse_duration
from .._policy.input.quote import counted
from .._policy.ticks import next_tick, ticks
from .._store.protocol import Store, all_records
from .._stores import open_store, store_name
from .._worker.settings import WorkerSettings
from ..app import App
from ..errors import InvalidOption
from ..tasktype import TaskType
from .assertions import Wanted, check_enqueued, check_not_enqueued, type_name
from .caller_thread import CallerThread
from .clock import ManualClock
from .harness_store import HarnessStore
from .inline import inline as enqueued_inline

T = TypeVar("T")

_MAX_ROUNDS = 10_000
_MAX_TICKS = 10_000
_LEAVE_TIMEOUT = 10.0


class RunOptions(TypedDict, total=False):
    """How tasks are run.

    `raise_errors`: raise the first exception of a handler here, unchanged [default]. If it is False, the task
    is retried or buried as in production. `slots`: tasks that run at once [default: 1].
    """

    raise_errors: bool
    slots: int


class Harness:
    """An app on a store of the test, whose tasks run when the test says so. Made by `harness`.

    Blocking handlers run in the thread of the test, so that they see its uncommitted transaction; in an async
    test, or with several slots, they run in threads. Async handlers run on an event loop: that of an async
    test, or else one beside it.
    """

    def __init__(
        self, app: App, clock: ManualClock, *, opened: Store | None = None, inline: bool = False
    ) -> None:
        self.app = app
        self.clock = clock
        self._opened = opened  # a store that has connections
        self._inline = inline
        self._caller = CallerThread()
        self._overrides: dict[Callable[..., Any], Callable[..., Any]] = {}

    # -- run -----------------------------------------------------------------------------------------

    def run_until_idle(self, **options: Unpack[RunOptions]) -> int:
        """Run every due task and its successors until none is left; return the number of runs.

        The first exception that a handler raises is raised here unchanged, unless `raise_errors` is
        False: then the task is retried or buried as in production. `slots`: tasks that run at once.
        """
        return self._beside(self._run_for(timedelta(0), options, self._caller_of(options)))

    async def arun_until_idle(self, **options: Unpack[RunOptions]) -> int:
        """`run_until_idle` for async tests."""
        return await self._closing(self._run_for(timedelta(0), options, None))

    def run_for(self, duration: timedelta | float | str, **options: Unpack[RunOptions]) -> int:
        """Advance the clock by this much, and run each task when it is due; return the number of runs.

        Ticks fire, and retries and delayed tasks start, at their own times. Options: as in `run_until_idle`.
        """
        span = parse_duration(duration, "duration")
        return self._beside(self._run_for(span, options, self._caller_of(options)))

    async def arun_for(self, duration: timedelta | float | str, **options: Unpack[RunOptions]) -> int:
        """`run_for` for async tests."""
        return await self._closing(self._run_for(parse_duration(duration, "duration"), options, None))

    def advance(self, by: timedelta | float | str) -> None:
        """Advance the clock, firing every tick of a schedule on the way, at its time.

        What becomes due, tasks of ticks included, runs in the next `run_until_idle`; so a schedule with
        overlap="skip" fires once. `run_for` runs tasks on the way.
        """
        self._beside(self._advance(self.clock.now() + parse_duration(by, "advance")))

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

    # -- look ----------------------------------------------------------------------------------------

    def tasks(self, of: TaskType[Any, Any, Any] | str | None = None, *states: State) -> list[Task]:
        """Return the tasks in the store, oldest first: of one type, in these states, or all."""
        name = type_name(of)
        where = Filter(types=None if name is None else (name,), states=states or None)
        return [*self.app.sync_operator.every(where)]

    def assert_enqueued(
        self,
        type: TaskType[Any, Any, Any] | str | None = None,
        payload: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        tenant: str | None = None,
        number: int | None = None,
    ) -> list[Task]:
        """Return the tasks of this type, payload, queue and tenant, oldest first, whatever their state.

            harness.assert_enqueued(welcome, {"user_id": 7}, queue="mail")

        `payload`: values that the payload must have, among others. Raises AssertionError unless there are
        `number` tasks [default: one or more]; its message lists what was enqueued.
        """
        __tracebackhide__ = True
        wanted = Wanted(type=type, payload=payload, queue=queue, tenant=tenant)
        return check_enqueued(self.tasks(), wanted, number)

    def assert_not_enqueued(
        self,
        type: TaskType[Any, Any, Any] | str | None = None,
        payload: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        tenant: str | None = None,
    ) -> None:
        """Raise AssertionError if there is a task of this type, payload, queue and tenant in any state."""
        __tracebackhide__ = True
        wanted = Wanted(type=type, payload=payload, queue=queue, tenant=tenant)
        check_not_enqueued(self.tasks(), wanted)

    # -- open and close ------------------------------------------------------------------------------

    def check_empty(self) -> None:
        """Raise InvalidOption if the store has tasks: they would be run."""
        self._beside(self._check_empty())

    def close(self) -> None:
        """Close the connections of the store."""
        if self._opened is not None:
            self._caller.run(self._opened.close())

    # -- the engine ----------------------------------------------------------------------------------

    def _caller_of(self, options: RunOptions) -> CallerThread | None:
        """Return what runs blocking handlers in the thread of the test; None: they run in several threads."""
        return self._caller if options.get("slots", 1) == 1 else None

    def _beside(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._caller.run(self._closing(coroutine))

    async def _closing(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await, then close the connections that the store has on this event loop; it opens others."""
        try:
            return await coroutine
        finally:
            if self._opened is not None:
                await self._opened.close()

    @asynccontextmanager
    async def _lifespans(self) -> AsyncIterator[Lifespans]:
        lifespans = self.app.hooks.lifespans()
        await lifespans.start()
        try:
            yield lifespans
        finally:
            await lifespans.end(_LEAVE_TIMEOUT)

    async def _run_for(self, span: timedelta, options: RunOptions, caller: CallerThread | None) -> int:
        await self.app.open()  # Stores the declared schedules.
        until, total = self.clock.now() + span, 0
        async with self._lifespans() as lifespans:
            for _ in range(_MAX_ROUNDS):
                total += await self._run_due(lifespans, options, caller)
                if self.clock.now() >= until:
                    return total
                self.clock.advance(await self._next_instant(until) - self.clock.now())
        raise AssertionError(f"tasks and ticks became due more than {_MAX_ROUNDS:,} times; run for less")

    async def _run_due(self, lifespans: Lifespans, options: RunOptions, caller: CallerThread | None) -> int:
        total = 0
        for _ in range(_MAX_ROUNDS):
            await Ticker(self.app.store).fire_due()
            await self.app.store.promote(1_000)
            await cancel_expired(self.app.store)
            queues = await self.app.store.count(Filter(states=(State.READY,)), [Dimension.QUEUE])
            if not queues:
                return total
            names = tuple(count.values[0] for count in queues)
            ran = await self._drain(names, lifespans, options, caller)
            if not ran:  # Only paused queues have ready tasks.
                return total
            total += ran
        raise AssertionError(
            f"still not idle after {_MAX_ROUNDS:,} rounds; do tasks enqueue themselves for ever?"
        )

    async def _drain(
        self,
        queues: tuple[str, ...],
        lifespans: Lifespans,
        options: RunOptions,
        caller: CallerThread | None,
    ) -> int:
        errors: list[BaseException] = []
        raise_errors, slots = options.get("raise_errors", True), options.get("slots", 1)
        settings = WorkerSettings(queues=queues, slots=slots, drain=True, keeper=False, name="test")
        loop = asyncio.get_running_loop()

        def note(_: Task, error: BaseException) -> None:
            errors.append(error)
            if raise_errors:
                loop.call_soon_threadsafe(partial(worker.stop, at_once=True))

        worker = self.app.worker(settings, on_error=note, lifespans=lifespans.borrowed())
        threads = None if caller is None else caller.threads(loop)
        worker.adapt_runner = lambda runner: runner.use_threads(threads, has_children=not self._inline)
        await worker.run()
        if errors and raise_errors:
            raise errors[0]
        return worker.ran

    async def _advance(self, until: datetime) -> None:
        await self.app.open()  # Stores the declared schedules.
        ticker = Ticker(self.app.store)
        await ticker.fire_due()  # Begins them.
        for instant in [*await self._ticks(until), until]:
            self.clock.advance(instant - self.clock.now())
            await ticker.fire_due()

    async def _next_instant(self, until: datetime) -> datetime:
        """Return when the next tick or task is due, or `until` if that is sooner."""
        now = self.clock.now()
        found = [next_tick(one, now) for one in await self._schedules()]
        scheduled = self.app.operator.every(Filter(states=(State.SCHEDULED,)))
        found += [task.run_at async for task in scheduled if task.run_at > now]
        return min([until, *(instant for instant in found if instant is not None)])

    async def _ticks(self, until: datetime) -> list[datetime]:
        """Return the instants of all ticks from now on, in order."""
        now = self.clock.now()
        found = [islice(ticks(one, now, until), _MAX_TICKS + 1) for one in await self._schedules()]
        instants = [instant for one in found for instant in one]
        if len(instants) > _MAX_TICKS:
            raise AssertionError(
                f"more than {_MAX_TICKS:,} ticks are due until {until}; advance by less, or pause schedules "
                f"that this test is not about: app.sync_operator.schedules.pause(name)"
            )
        return sorted(set(instants))

    async def _schedules(self) -> list[Schedule]:
        return [one for one in await all_records(self.app.store, Schedule) if not one.paused]

    async def _check_empty(self) -> None:
        await self.app.store.open()
        found = sum(count.number for count in await self.app.store.count(Filter(), []))
        if found:
            raise InvalidOption(
                f"the store has {counted(found, 'task')}, which the harness would run; use an empty "
                f"store: a new SQLite file, or another schema on Postgres (?schema=…)"
            )


class NewHarness(Protocol):
    """What the fixture `windlass_harness` is: puts an app on a store of the test until the test ends."""

    def __call__(
        self,
        app: App,
        store: str | None = None,
        *,
        clock: ManualClock | None = None,
        inline: bool = False,
    ) -> Harness: ...


@contextmanager
def harness(
    app: App, store: str | None = None, *, clock: ManualClock | None = None, inline: bool = False
) -> Iterator[Harness]:
    """Run a block with the app on a store of the test and a manual clock; restore its own store afterwards.

    `store`: the URL of an empty store [default: in memory]. `clock`: one of yours [default: a new one, at the
    start of 2026]. `inline`: run tasks where they are enqueued, before `enqueue` returns, `process=True` ones
    included. Raises InvalidOption if the store has tasks, or with both `store` and `inline`.
    """
    if store is not None and inline:
        raise InvalidOption(
            "inline tasks run before your transaction commits, when a store on "
            f"{store_name(store)} cannot see them; leave out store, which keeps tasks in memory"
        )
    clock = clock or ManualClock()
    opened = None if store is None else open_store(store, clock=clock)
    before = app.use_store(opened or HarnessStore(clock=clock))
    made = Harness(app, clock, opened=opened, inline=inline)
    with ExitStack() as stack:
        stack.callback(app.use_store, before)
        stack.callback(app.hooks.override, {})
        if opened is not None:
            stack.callback(never_tell_enqueuer(app.store))
            stack.callback(made.close)
            made.check_empty()
        if inline:
            stack.enter_context(enqueued_inline(app, made))
        yield made
