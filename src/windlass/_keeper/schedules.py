"""The chore of firing schedules. (T1, T3)

A tick is enqueued first and noted after, under a key that names it. So a leader that dies in between, or one
that was deposed and has not noticed, leaves no tick out and gives none a second task.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from .._ids import new_id
from .._model.schedule import Missed, Schedule, Tick
from .._model.task import NewTask, TaskId
from .._policy.schedule import tick_task
from .._policy.ticks import GRACE, due, next_tick
from .._store.protocol import Store, all_records
from ..errors import DuplicateTask, IdempotencyConflict, InvalidOption, StoreError

logger = logging.getLogger("windlass.keeper")

R = TypeVar("R", Schedule, Tick)

LOOK_EVERY = 1.0  # seconds within which a change made at run time is noticed
_AT_ONCE = 200  # schedules; the rest waits for the other chores


class _Plan:
    """A schedule, how far it has come, and when to attend to it (None: never, as things stand)."""

    __slots__ = ("due_at", "schedule", "tick")

    def __init__(self, schedule: Schedule, tick: Tick | None, due_at: datetime) -> None:
        self.schedule = schedule
        self.tick = tick
        self.due_at: datetime | None = None if schedule.paused else due_at


class Ticker:
    """Fires what is due. Between two looks at the store it goes by what it knows, so as to be in time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: dict[str, _Plan] = {}
        self._look_at = 0.0
        self._now: datetime | None = None
        self._broken: dict[str, str] = {}  # name -> what was last said of it

    async def fire_due(self) -> float:
        """Fire every tick that is due; answers with the seconds until it is to be asked again."""
        if monotonic() >= self._look_at:
            await self._look()
        if not self._plans:
            return max(self._look_at - monotonic(), 0.0)
        began, now = monotonic(), await self._store.now()
        if self._now is not None and now < self._now:  # set back: what was far off may be near
            self._plans = {name: _Plan(plan.schedule, plan.tick, now) for name, plan in self._plans.items()}
        self._now = now
        waiting = [plan for plan in self._plans.values() if plan.due_at is not None and plan.due_at <= now]
        for plan in waiting[:_AT_ONCE]:
            await self._attend(plan, now)
        if len(waiting) > _AT_ONCE:
            return 0.0
        soonest = min((plan.due_at for plan in self._plans.values() if plan.due_at), default=None)
        wait_until = self._look_at
        if soonest is not None:
            wait_until = min(wait_until, began + (soonest - now).total_seconds())
        return max(wait_until - monotonic(), 0.0)

    async def _look(self) -> None:
        """Learn what has changed. What has not keeps its place."""
        schedules = await all_records(self._store, Schedule)
        ticks = {tick.name: tick for tick in await all_records(self._store, Tick)} if schedules else {}
        plans: dict[str, _Plan] = {}
        now = await self._store.now() if schedules else None
        for schedule in schedules:
            assert now is not None
            known, tick = self._plans.get(schedule.name), ticks.get(schedule.name)
            is_known = known is not None and (known.schedule, known.tick) == (schedule, tick)
            plans[schedule.name] = known if known and is_known else _Plan(schedule, tick, now)
        self._plans = plans
        self._broken = {name: told for name, told in self._broken.items() if name in plans}
        self._look_at = monotonic() + LOOK_EVERY

    async def _attend(self, plan: _Plan, now: datetime) -> None:
        """Bring one schedule up to now. What is wrong with it is its own affair."""
        name = plan.schedule.name
        try:
            await self._advance(plan, now)
            plan.due_at = next_tick(plan.schedule, now)
            self._broken.pop(name, None)
        except StoreError as error:
            if error.transient:
                raise
            self._complain(name, error)
            plan.due_at = now + GRACE
        except Exception as error:  # noqa: BLE001  # a record that cannot be read: told, and left for later
            self._complain(name, error)
            plan.due_at = now + GRACE

    async def _advance(self, plan: _Plan, now: datetime) -> None:
        schedule = plan.schedule
        if plan.tick is None:
            next_tick(schedule, now)  # one whose rule cannot be read does not begin
            plan.tick = Tick(name=schedule.name, at=schedule.since or now)
            await self._store.put(plan.tick)
        found = due(schedule, plan.tick, now)
        if found.at is None:
            return
        if found.missed:
            _tell_missed(schedule, plan.tick.at, now)
        tick = replace(plan.tick, at=found.at)
        if fired := await self._fire(schedule, found.instants):
            tick = replace(tick, fired_at=fired[0], task_id=fired[1])
        await self._store.put(tick)
        plan.tick = tick

    async def _fire(self, schedule: Schedule, instants: Sequence[datetime]) -> tuple[datetime, TaskId] | None:
        """Enqueue a task for each; answers with the last one that has a task, and that."""
        tasks = [tick_task(schedule, instant, new_id) for instant in instants]
        if len(tasks) > 1 and tasks[0].fingerprint is None:
            with suppress(IdempotencyConflict):  # then one by one, to learn which
                return instants[-1], (await self._store.enqueue(tasks))[-1].id
        last = None
        for instant, task in zip(instants, tasks, strict=True):
            if (task_id := await self._enqueue(schedule, instant, task)) is not None:
                last = instant, task_id
        return last

    async def _enqueue(self, schedule: Schedule, instant: datetime, task: NewTask) -> TaskId | None:
        try:
            (answer,) = await self._store.enqueue([task])
        except IdempotencyConflict as error:  # fired already, before the schedule was changed
            return error.standing
        except DuplicateTask as error:
            logger.info(
                "schedule %s: the tick of %s is passed over, task %s has not ended",
                schedule.name,
                instant.isoformat(),
                error.standing,
            )
            return None
        return answer.id

    def _complain(self, name: str, error: Exception) -> None:
        """Once for each thing that is wrong."""
        told = f"{type(error).__name__}: {error}"
        if self._broken.get(name) != told:
            self._broken[name] = told
            trace = None if isinstance(error, InvalidOption) else error
            logger.error("schedule %s cannot be fired: %s", name, told, exc_info=trace)


def _tell_missed(schedule: Schedule, since: datetime, now: datetime) -> None:
    what = {
        Missed.SKIP: "they are passed over",
        Missed.ONCE: "the last of them is fired",
        Missed.ALL: f"the last {schedule.at_most} of them are fired",
    }[schedule.missed]
    logger.warning(
        "schedule %s: ticks between %s and %s were missed; %s",
        schedule.name,
        since.isoformat(timespec="seconds"),
        now.isoformat(timespec="seconds"),
        what,
    )
