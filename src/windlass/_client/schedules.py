"""Schedules: what programs declare and people do about what is to be enqueued when. (T2)"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from hashlib import sha256
from itertools import islice
from typing import Any, Unpack, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._handler.spec import HandlerSpec
from .._ids import new_id
from .._model.filter import By
from .._model.options import Options
from .._model.queue import Ordering, QueueSettings
from .._model.record import Declaration
from .._model.schedule import Schedule, ScheduleOptions, ScheduleTiming, Tick
from .._model.task import TaskId
from .._policy.input.chain import Step
from .._policy.input.payload import encode_payload
from .._policy.input.quoting import quoted
from .._policy.order.rank import boost
from .._policy.schedule import new_schedule, same_rule, triggered_task
from .._policy.ticks import next_tick, ticks
from .._store.protocol import Store
from ..errors import DuplicateTask, InvalidOption, NotFound, Refused
from .builder import TaskBuilder
from .declarations import every
from .loop import LoopThread

MAX_UPCOMING = 1_000


class ScheduleStatus(Struct, frozen=True, kw_only=True):
    """A schedule and where it stands. `next_at` is None while it is paused, or if it has none to come."""

    schedule: Schedule
    next_at: datetime | None = None
    last_at: datetime | None = None  # the last tick that was fired
    task_id: TaskId | None = None  # and the task it became
    error: str | None = None  # what is wrong with it


class Schedules:
    """See schedules, and steer them while everything runs. The leading keeper notices within seconds."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # whom the audit log names; None: a program, which it does not tell of

    async def list(self) -> Sequence[ScheduleStatus]:
        """All of them, by name."""
        schedules = await every(self._store, Schedule)
        reached = {tick.name: tick for tick in await every(self._store, Tick)}
        now = await self._store.now()
        return [_status(schedule, reached.get(schedule.name), now) for schedule in schedules]

    async def get(self, name: str) -> ScheduleStatus:
        """One of them; NotFound if there is none."""
        found = await self.list()
        for one in found:
            if one.schedule.name == name:
                return one
        close = get_close_matches(str(name)[:200], [one.schedule.name for one in found], n=1)
        hint = f"did you mean {close[0]!r}?" if close else "`windlass schedules list` shows those there are"
        raise NotFound(f"there is no schedule {quoted(name)}; {hint}")

    async def add(
        self,
        name: str,
        type: str,
        rule: timedelta | float | str,
        payload: Mapping[str, Any] | None = None,
        *,
        instead: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Add a schedule; its first tick is the next one. Refused if the name is taken, unless `instead`.

        `rule` is a cron expression or an interval; the task is of a type that need not be known here.
        """
        made = await self.make(name, type, rule, encode_payload(payload or {}), **options)
        return await self.put(made, instead=instead)

    async def make(
        self,
        name: str,
        type: str,
        rule: timedelta | float | str,
        payload: bytes,
        spec: HandlerSpec | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Build a schedule from an encoded payload, with the defaults that `spec` declares; store nothing."""
        _check(options, ScheduleOptions.__annotations__)
        given: dict[str, Any] = {**options}
        timing: Any = {key: given.pop(key) for key in ScheduleTiming.__annotations__ if key in given}
        known = {settings.name: settings.ordering for settings in await every(self._store, QueueSettings)}
        step = TaskBuilder(known).step(type, payload, cast("Options", given), spec)
        return new_schedule(name, step, rule, timing)

    async def put(self, schedule: Schedule, *, instead: bool = False) -> Schedule:
        """Add a schedule that is made already."""
        standing = {one.name: one for one in await every(self._store, Schedule)}.get(schedule.name)
        if standing is not None and not instead:
            raise Refused(
                f"there is a schedule {schedule.name!r} already; replace it (instead=True, --replace), or "
                f"choose another name"
            )
        since = await self._store.now()
        if standing is not None and same_rule(standing, schedule):
            since = standing.since or since
        schedule = replace(schedule, since=since, paused=standing is not None and standing.paused)
        await self._store.put(schedule, self._by)
        return schedule

    async def pause(self, name: str) -> None:
        """Fire no tick until it is resumed; those that come meanwhile are not made up for."""
        schedule = (await self.get(name)).schedule
        await self._store.put(replace(schedule, paused=True), self._by)

    async def resume(self, name: str) -> None:
        """Go on with the next tick."""
        schedule = (await self.get(name)).schedule
        if schedule.paused:
            resumed = replace(schedule, paused=False, since=await self._store.now())
            await self._store.put(resumed, self._by)

    async def trigger(self, name: str) -> TaskId:
        """Enqueue its task now, once, paused or not; its ticks come as if nothing had happened.

        The task says who triggered it: it was enqueued by them. DuplicateTask if its tasks must not overlap
        and one has not ended.
        """
        schedule = (await self.get(name)).schedule
        try:
            who = None if self._by is None else self._by.who
            (answer,) = await self._store.enqueue([triggered_task(schedule, new_id, who)])
        except DuplicateTask as error:
            raise DuplicateTask(
                f"task {error.standing} of the schedule {name!r} has not ended, and they do not overlap; "
                f"wait for it, or cancel it",
                standing=error.standing,
            ) from None
        return answer.id

    async def remove(self, name: str) -> None:
        """Forget it; tasks that it has enqueued stay. NotFound if there is none."""
        await self.get(name)
        await self._store.remove(Schedule, name, self._by)
        await self._store.remove(Tick, name)

    async def upcoming(self, name: str, number: int = 5) -> Sequence[datetime]:
        """Its next ticks, as if it were not paused."""
        if not 1 <= number <= MAX_UPCOMING:
            raise InvalidOption(f"1 to {MAX_UPCOMING:,} ticks can be asked for, not {number:,}")
        schedule = (await self.get(name)).schedule
        return [*islice(ticks(schedule, await self._store.now()), number)]


class SyncSchedules:
    """See schedules, and steer them, blocking."""

    def __init__(self, schedules: Schedules, loop: LoopThread) -> None:
        self._schedules = schedules
        self._loop = loop

    def list(self) -> Sequence[ScheduleStatus]:
        """All of them, by name."""
        return self._loop.run(self._schedules.list())

    def get(self, name: str) -> ScheduleStatus:
        """One of them; NotFound if there is none."""
        return self._loop.run(self._schedules.get(name))

    def add(
        self,
        name: str,
        type: str,
        rule: timedelta | float | str,
        payload: Mapping[str, Any] | None = None,
        *,
        instead: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Add a schedule; its first tick is the next one."""
        return self._loop.run(self._schedules.add(name, type, rule, payload, instead=instead, **options))

    def pause(self, name: str) -> None:
        """Fire no tick until it is resumed."""
        self._loop.run(self._schedules.pause(name))

    def resume(self, name: str) -> None:
        """Go on with the next tick."""
        self._loop.run(self._schedules.resume(name))

    def trigger(self, name: str) -> TaskId:
        """Enqueue its task now, once; its ticks come as if nothing had happened."""
        return self._loop.run(self._schedules.trigger(name))

    def remove(self, name: str) -> None:
        """Forget it; NotFound if there is none."""
        self._loop.run(self._schedules.remove(name))

    def upcoming(self, name: str, number: int = 5) -> Sequence[datetime]:
        """Its next ticks, as if it were not paused."""
        return self._loop.run(self._schedules.upcoming(name, number))


class DeclaredSchedules:
    """The schedules that a program declares. They are put when they are new or have changed since they were
    put: what an operator does to them stands until then, and that one is paused stands for ever."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}

    @property
    def names(self) -> frozenset[str]:
        """What they are called."""
        return frozenset(self._schedules)

    def add(self, name: str, step: Step, rule: timedelta | float | str, timing: ScheduleTiming) -> None:
        """Declare one."""
        _check(timing, ScheduleTiming.__annotations__)
        schedule = new_schedule(name, step, rule, timing, declared=True)
        if name in self._schedules:
            raise InvalidOption(f"the schedule {name!r} is declared twice; give one of them another name")
        self._schedules[name] = schedule

    async def publish(self, store: Store, ordering: Callable[[str], Ordering]) -> None:
        """Put what is new or has changed. Schedules that others declared are theirs, and stay."""
        if not self._schedules:
            return
        told = {one.name: one.body for one in await every(store, Declaration)}
        wanted = Schedules(store)
        for declared in self._schedules.values():
            schedule = replace(declared, boost=boost(declared.priority, ordering(declared.queue)))
            said = sha256(msgspec.json.encode(schedule)).hexdigest()
            if told.get(f"schedule/{schedule.name}") != said:
                await wanted.put(schedule, instead=True)
                await store.put(Declaration(name=f"schedule/{schedule.name}", body=said))


def _status(schedule: Schedule, tick: Tick | None, now: datetime) -> ScheduleStatus:
    error = next_at = None
    try:
        next_at = next_tick(schedule, now)
    except InvalidOption as found:
        error = str(found)
    return ScheduleStatus(
        schedule=schedule,
        next_at=None if schedule.paused else next_at,
        last_at=None if tick is None else tick.fired_at,
        task_id=None if tick is None else tick.task_id,
        error=error,
    )


def _check(options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a name that is no option, with the one that was probably meant."""
    for given in options:
        if given in known:
            continue
        close = get_close_matches(given, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        if given in ScheduleOptions.__annotations__:
            hint = f"it belongs to the task: make that with .using({given}=…).step(…)"
        raise InvalidOption(f"there is no option {given!r} of a schedule; {hint}")
