"""Operator: what people call to see and steer what is in the store. (L1, L2, F6)"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Unpack

from msgspec.structs import replace

from .._model.attempt import Attempt
from .._model.filter import (
    MAX_PAGE,
    Action,
    By,
    CancelTasks,
    Count,
    Dimension,
    Discard,
    Filter,
    Page,
    Replay,
    Slice,
)
from .._model.queue import QueueSettings, Retention
from .._model.record import Audit, Session
from .._model.state import PENDING, REPLAYABLE, State
from .._model.task import Task, TaskId
from .._policy.input.options import checked_name
from .._policy.input.payload import parse_payload
from .._policy.order.queue_options import QueueChanges, changed_queue
from .._store.protocol import Finding, Migration, Promise, Store
from ..errors import InvalidOption, NotFound, Refused, TaskFinished
from .alerts import Alerts
from .declarations import every
from .keys import Keys
from .limits import Limits
from .schedules import Schedules

DEAD = Filter(states=(State.DEAD,))
_AT_ONCE = 500


class Operator:
    """Look into a store, and act on what is there. Every act is audited, with who and why."""

    def __init__(self, store: Store, by: By) -> None:
        self._store = store
        self._by = by
        self.keys = Keys(store, by)
        self.limits = Limits(store, by)
        self.alerts = Alerts(store, by)
        self.schedules = Schedules(store, by)

    def acting_as(self, by: By) -> "Operator":
        """An operator of the same store whose changes the audit log puts down to this one."""
        return Operator(self._store, by)

    # -- see -----------------------------------------------------------------------------------------

    async def task(self, task_id: TaskId) -> Task:
        """One task; NotFound if there is none."""
        found = await self.find(Filter(ids=(task_id,)), Page(limit=1))
        if not found.items:
            raise NotFound(
                f"there is no task {task_id}: it was never enqueued here, or its record was pruned"
            )
        return found.items[0]

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The settled attempts of a task, oldest first."""
        await self._store.open()
        return await self._store.attempts(task_id)

    async def find(self, where: Filter | None = None, page: Page | None = None) -> Slice[Task]:
        """A page of the tasks that match."""
        page = page or Page()
        if not 1 <= page.limit <= MAX_PAGE:
            raise InvalidOption(f"a page holds 1 to {MAX_PAGE} tasks, not {page.limit}")
        await self._store.open()
        return await self._store.find(where or Filter(), page)

    async def every(self, where: Filter | None = None) -> AsyncIterator[Task]:
        """All tasks that match, oldest first, fetched a page at a time."""
        page = Page(limit=MAX_PAGE)
        while True:
            found = await self.find(where, page)
            for task in found.items:
                yield task
            if found.cursor is None:
                return
            page = replace(page, cursor=found.cursor)

    async def count(self, where: Filter | None = None, by: Sequence[Dimension] = ()) -> Sequence[Count]:
        """How many match, by these dimensions."""
        await self._store.open()
        return await self._store.count(where or Filter(), by)

    async def workers(self) -> Sequence[Session]:
        """The worker sessions the store knows, expired ones until they are rescued."""
        return await every(self._store, Session)

    async def queues(self) -> Sequence[QueueSettings]:
        """The queues that have settings of their own."""
        return await every(self._store, QueueSettings)

    async def audit(self, page: Page | None = None) -> Slice[Audit]:
        """Who did what to which task or record, and why."""
        await self._store.open()
        return await self._store.records(Audit, page or Page(newest_first=True))

    # -- act -----------------------------------------------------------------------------------------

    async def cancel(self, where: Filter, *, by: By, limit: int | None = None) -> int:
        """Cancel what has not ended: pending tasks at once, running ones are asked to stop."""
        await self._store.open()
        action = CancelTasks(by=by)
        wanted = tuple(State) if where.states is None else where.states
        done = 0
        # Pending tasks leave the filter as they are cancelled; running ones stay in it, and are asked once.
        if pending := tuple(state for state in PENDING if state in wanted):
            done = await self._in_batches(action, replace(where, states=pending), limit)
        if State.RUNNING in wanted:
            running = [task.id async for task in self.every(replace(where, states=(State.RUNNING,)))]
            done += await self._one_by_one(action, running if limit is None else running[: limit - done])
        return done

    async def replay(
        self,
        where: Filter = DEAD,
        *,
        by: By,
        payload: bytes | None = None,
        per_second: float | None = None,
        limit: int | None = None,
    ) -> int:
        """Bring dead or cancelled tasks back, perhaps edited, perhaps no faster than `per_second`."""
        if payload is not None and (where.ids is None or len(where.ids) != 1):
            raise InvalidOption("an edited payload is for one task; name its id")
        if payload is not None:
            payload = parse_payload(payload)
        if per_second is not None and per_second <= 0:
            raise InvalidOption(f"a rate is more than 0 tasks a second, not {per_second:g}")
        if where.finished_before is None:
            # What dies again while this goes on has been replayed already.
            where = replace(where, finished_before=await self.now() + timedelta(microseconds=1))
        action = Replay(by=by, payload=payload)
        return await self._in_batches(action, where, limit, per_second=per_second)

    async def discard(self, where: Filter, *, by: By, limit: int | None = None) -> int:
        """Delete dead tasks for good. It takes a reason."""
        if not by.why.strip():
            raise InvalidOption("discarding is for ever: say why (why=…, --why on the command line)")
        return await self._in_batches(Discard(by=by), where, limit)

    async def replay_one(self, task_id: TaskId, *, by: By, payload: bytes | None = None) -> None:
        """Replay this one, or say why not."""
        if not await self.replay(Filter(ids=(task_id,)), by=by, payload=payload):
            task = await self.task(task_id)
            if task.state in REPLAYABLE:
                raise Refused(f"task {task_id} cannot come back: another with its fingerprint stands")
            raise Refused(f"task {task_id} is {task.state}; only dead or cancelled tasks are replayed")

    async def discard_one(self, task_id: TaskId, *, by: By) -> None:
        """Discard this one, or say why not."""
        if not await self.discard(Filter(ids=(task_id,)), by=by):
            task = await self.task(task_id)
            raise Refused(f"task {task_id} is {task.state}; only dead tasks are discarded")

    async def cancel_one(self, task_id: TaskId, *, by: By) -> State:
        """Cancel this one, or say why not; RUNNING means that it has been asked to stop."""
        await self._store.open()
        if not await self._store.apply(CancelTasks(by=by), Filter(ids=(task_id,)), 1):
            task = await self.task(task_id)
            raise TaskFinished(f"task {task_id} is {task.state} already, and an end is final")
        return (await self.task(task_id)).state

    async def pause(self, queue: str) -> None:
        """No task of this queue is claimed until it is resumed; running ones go on."""
        await self.set_queue(queue, paused=True)

    async def resume(self, queue: str) -> None:
        """Let the queue go on."""
        await self.set_queue(queue, paused=False)

    async def stripe(self, queue: str, stripes: int) -> None:
        """Spread the queue's new tasks over so many stripes: order then holds within each. 1 is one line.

        Programs notice within seconds. What lies in stripes that there were before is still claimed.
        """
        await self._set(queue, lambda settings: replace(settings, stripes=stripes))

    async def set_queue(
        self, queue: str, *, paused: bool | None = None, **changes: Unpack[QueueChanges]
    ) -> QueueSettings:
        """Change what is named of a queue's settings; None is the default. Answers with how it stands.

        `weights={"acme": 3, "ada": None}` changes acme's weight, takes ada's away and leaves the others.
        `paused` pauses or resumes it in the same step; None leaves that as it is.
        """

        def change(settings: QueueSettings) -> QueueSettings:
            told = changed_queue(settings, changes)
            return told if paused is None else replace(told, paused=paused)

        return await self._set(queue, change)

    async def prune(self, retention: Retention) -> int:
        """Delete now what this retention (or a queue's own) no longer covers."""
        await self._store.open()
        total = number = await self._store.prune(retention, _AT_ONCE, self._by)
        while number:
            number = await self._store.prune(retention, _AT_ONCE)
            total += number
        return total

    # -- nurse ---------------------------------------------------------------------------------------

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives in this store."""
        return self._store.promise

    async def now(self) -> datetime:
        """The store's clock, by which every instant here is told."""
        await self._store.open()
        return await self._store.now()

    async def check(self) -> Sequence[Finding]:
        """What a person should know about the store."""
        return await self._store.check()

    async def migrations(self) -> Sequence[Migration]:
        """The steps of the store's schema."""
        return await self._store.migrations()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Bring the schema up, or down, to a version."""
        return await self._store.migrate(target)

    # -- how -----------------------------------------------------------------------------------------

    async def _in_batches(
        self,
        action: Action,
        where: Filter,
        limit: int | None,
        *,
        per_second: float | None = None,
    ) -> int:
        """Apply to everything that matches, a bounded batch at a time, so that no step is long."""
        await self._store.open()
        done = 0
        while limit is None or done < limit:
            room = _AT_ONCE if limit is None else min(_AT_ONCE, limit - done)
            if per_second is not None:
                room = max(1, min(room, int(per_second)))
            number = len(await self._store.apply(action, where, room))
            done += number
            if number < room or done == limit:
                break
            if per_second is not None:
                await asyncio.sleep(number / per_second)
        return done

    async def _one_by_one(self, action: Action, ids: Sequence[TaskId]) -> int:
        """Apply to exactly these."""
        done = 0
        for start in range(0, len(ids), _AT_ONCE):
            batch = tuple(ids[start : start + _AT_ONCE])
            done += len(await self._store.apply(action, Filter(ids=batch), len(batch)))
        return done

    async def _set(self, queue: str, change: Callable[[QueueSettings], QueueSettings]) -> QueueSettings:
        checked_name(queue, "queue")
        known = {settings.name: settings for settings in await self.queues()}
        settings = change(known.get(queue) or QueueSettings(name=queue))
        await self._store.put(settings, self._by)
        return settings
