"""The chore of firing schedules.

A tick's task is enqueued first, under a key that names the tick, and recorded after. So a leader that dies in
between, or was deposed without noticing, neither skips a tick nor fires it twice.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from .._ids import new_id
from .._model.filter import Filter, Page
from .._model.schedule import Missed, Schedule, Tick
from .._model.task import NewTask, TaskId
from .._policy.schedule import former_tick_key, origin, tick_task
from .._policy.ticks import GRACE, due, next_tick
from .._store.outage import ShardUnavailable
from .._store.protocol import Store, all_records
from ..errors import DuplicateTask, IdempotencyConflict, InvalidOption, Refused, StoreError

logger = logging.getLogger("windlass.keeper")

RELOAD_EVERY = 1.0  # seconds until a change made at run time is noticed
_BATCH = 200  # schedules in one turn; the rest waits for the other chores


class _Plan(Struct, eq=False):
    """A schedule, its last tick, and when to handle it next (None: not while it is as it is).

    Another keeper may have fired ticks of one that `is_new` here and died before it recorded them.
    """

    schedule: Schedule
    tick: Tick | None
    due_at: datetime | None
    is_new: bool = True

    def __post_init__(self) -> None:
        if self.schedule.paused:
            self.due_at = None


class Ticker:
    """Fires due ticks. Keeps the schedules in memory between reloads, so as to fire in time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: dict[str, _Plan] = {}
        self._reload_at = 0.0
        self._now: datetime | None = None
        self._errors: dict[str, str] = {}  # the last one logged, by schedule

    async def fire_due(self) -> float:
        """Fire every tick that is due; return the seconds until the next call."""
        if monotonic() >= self._reload_at:
            await self._reload()
        if not self._plans:
            return max(self._reload_at - monotonic(), 0.0)
        began, now = monotonic(), await self._store.now()
        if self._now is not None and now < self._now:  # set back: compute everything again
            self._plans = {name: _Plan(plan.schedule, plan.tick, now) for name, plan in self._plans.items()}
        self._now = now
        due_plans = [plan for plan in self._plans.values() if plan.due_at is not None and plan.due_at <= now]
        problem: ShardUnavailable | None = None
        for plan in due_plans[:_BATCH]:
            try:
                await self._handle(plan, now)
            except ShardUnavailable as error:  # the other schedules fire
                problem = problem or error
        if problem is not None:
            raise problem
        if len(due_plans) > _BATCH:
            return 0.0
        soonest = min((plan.due_at for plan in self._plans.values() if plan.due_at), default=None)
        wait_until = self._reload_at
        if soonest is not None:
            wait_until = min(wait_until, began + (soonest - now).total_seconds())
        return max(wait_until - monotonic(), 0.0)

    async def _reload(self) -> None:
        """Load the schedules. A plan stays if neither its schedule nor its tick has changed."""
        schedules = await all_records(self._store, Schedule)
        ticks = {tick.name: tick for tick in await all_records(self._store, Tick)} if schedules else {}
        plans: dict[str, _Plan] = {}
        now = await self._store.now() if schedules else None
        for schedule in schedules:
            plan, tick = self._plans.get(schedule.name), ticks.get(schedule.name)
            if plan is None or (plan.schedule, plan.tick) != (schedule, tick):
                plan = _Plan(schedule, tick, now)
            plans[schedule.name] = plan
        self._plans = plans
        self._errors = {name: error for name, error in self._errors.items() if name in plans}
        self._reload_at = monotonic() + RELOAD_EVERY

    async def _handle(self, plan: _Plan, now: datetime) -> None:
        """Fire one schedule's due ticks. An error in it must not keep the others from being fired."""
        name = plan.schedule.name
        try:
            await self._advance(plan, now)
            plan.due_at = next_tick(plan.schedule, now)
            self._errors.pop(name, None)
        except Exception as error:  # an invalid record is logged and retried later
            if isinstance(error, StoreError) and error.transient:
                raise
            self._log_error(name, error)
            plan.due_at = now + GRACE

    async def _advance(self, plan: _Plan, now: datetime) -> None:
        schedule = plan.schedule
        if plan.tick is None:
            next_tick(schedule, now)  # raises if the rule is invalid: then it does not start
            plan.tick = Tick(name=schedule.name, at=schedule.since or now)
            await self._store.put(plan.tick)
        found = due(schedule, plan.tick, now)
        if found.at is None:
            return
        if found.missed is not None:
            _log_missed(schedule, *found.missed)
        tick = replace(plan.tick, at=found.at)
        instants = found.instants
        fired = await self._fired_by_former_version(schedule, instants) if plan.is_new else {}
        if last := await self._fire(schedule, [instant for instant in instants if instant not in fired]):
            fired[last[0]] = last[1]
        if fired:
            tick = replace(tick, fired_at=max(fired), task_id=fired[max(fired)])
        await self._store.put(tick)
        plan.tick, plan.is_new = tick, False

    async def _fired_by_former_version(
        self, schedule: Schedule, instants: Sequence[datetime]
    ) -> dict[datetime, TaskId]:
        """Return the tasks of ticks that a keeper of an earlier version fired, under keys in another form."""
        fired: dict[datetime, TaskId] = {}
        for instant in instants:
            key = former_tick_key(schedule, instant)
            where = Filter(idempotency_key=key, tenants=(schedule.tenant,), queues=(schedule.queue,))
            for task in (await self._store.find(where, Page(limit=1))).items:
                if task.enqueued_by == origin(schedule):  # not a caller's task
                    fired[instant] = task.id
        return fired

    async def _fire(self, schedule: Schedule, instants: Sequence[datetime]) -> tuple[datetime, TaskId] | None:
        """Enqueue a task for each instant; return the last instant that has one, and its id."""
        if not instants:
            return None
        tasks = [tick_task(schedule, instant, new_id) for instant in instants]
        if len(tasks) > 1 and tasks[0].fingerprint is None:
            with suppress(IdempotencyConflict):  # then one by one, to find out which
                return instants[-1], (await self._store.enqueue(tasks))[-1].id
        last = None
        for instant, task in zip(instants, tasks, strict=True):
            if (task_id := await self._enqueue(schedule, instant, task)) is not None:
                last = instant, task_id
        return last

    async def _enqueue(self, schedule: Schedule, instant: datetime, task: NewTask) -> TaskId | None:
        try:
            (enqueued,) = await self._store.enqueue([task])
        except IdempotencyConflict as error:  # fired already, before the schedule was changed
            return error.standing
        except DuplicateTask as error:
            logger.info(
                "schedule %s: skipping the tick of %s, as it would be a duplicate of task %s",
                schedule.name,
                instant.isoformat(),
                error.standing,
            )
            return None
        return enqueued.id

    def _log_error(self, name: str, error: Exception) -> None:
        """Log an error, unless it is the same as the last one."""
        text = f"{type(error).__name__}: {error}"
        if self._errors.get(name) != text:
            self._errors[name] = text
            trace = None if isinstance(error, InvalidOption | Refused) else error
            logger.error("cannot fire schedule %s: %s", name, text, exc_info=trace)


def _log_missed(schedule: Schedule, after: datetime, until: datetime) -> None:
    action = {
        Missed.SKIP: "skipping them",
        Missed.ONCE: "firing the last of them",
        Missed.ALL: f"firing the last {schedule.at_most} of them",
    }[schedule.missed]
    logger.warning(
        "schedule %s: ticks after %s, up to %s, were missed; %s",
        schedule.name,
        after.isoformat(timespec="seconds"),
        until.isoformat(timespec="seconds"),
        action,
    )
