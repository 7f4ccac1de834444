"""A handle on one task: its state, its result, and a way to cancel it."""

import asyncio
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from .._model.filter import By, CancelTasks, Filter, Page
from .._model.state import ENDED, State
from .._model.task import Progress, Task, TaskId
from .._policy.input.options import parse_duration
from .._store.protocol import Store
from ..errors import NotFinished, NotFound, TaskCancelled, TaskDead, TaskFinished

R = TypeVar("R")

_FIRST_POLL, _LAST_POLL = 0.005, 0.25  # seconds between polls, growing from one to the other


class Handle(Generic[R]):
    """One task, for the program that enqueued it.

        handle = await welcome.aenqueue(user_id=1)
        await handle.result(timeout=10)

    Every method reads the store anew.
    """

    id: TaskId
    """The task's id."""

    created: bool
    """False if the task existed before: it was enqueued earlier with the same idempotency key."""

    following: tuple[TaskId, ...]
    """The ids of the tasks that follow in its chain; each exists once the one before it has completed."""

    def __init__(
        self,
        store: Store,
        task_id: TaskId,
        *,
        created: bool = True,
        following: tuple[TaskId, ...] = (),
        result_type: Any = Any,
    ) -> None:
        self._store = store
        self.id = task_id
        self.created = created
        self.following = following
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    async def task(self) -> Task:
        """Return the task as it is now; raises NotFound once its record has been pruned."""
        await self._store.open()
        found = await self._store.find(Filter(ids=(self.id,)), Page(limit=1))
        if not found.items:
            raise NotFound(
                f"there is no task {self.id}: it was never enqueued here, or its record was pruned"
            )
        return found.items[0]

    async def state(self) -> State:
        """Return the task's state; raises NotFound once its record has been pruned."""
        return (await self.task()).state

    async def progress(self) -> Progress | None:
        """Return what the handler last reported with `ctx.progress`; None if it has reported nothing."""
        return (await self.task()).progress

    async def wait(self, timeout: timedelta | float | str | None = None) -> Task:
        """Wait until the task has ended and return it: completed, dead or cancelled.

        `timeout`: seconds, a timedelta or text such as "30s" [default: wait for ever]. Raises NotFinished
        when it is over; the task goes on regardless.
        """
        limit = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        loop = asyncio.get_running_loop()
        deadline = None if limit is None else loop.time() + limit
        pause = _FIRST_POLL
        while (task := await self.task()).state not in ENDED:
            if deadline is not None and loop.time() >= deadline:
                raise NotFinished(
                    f"task {self.id} is still {task.state} after {limit:g} s; it goes on regardless"
                )
            left = pause if deadline is None else min(pause, deadline - loop.time())
            await asyncio.sleep(max(left, 0))
            pause = min(pause * 1.5, _LAST_POLL)
        return task

    async def result(self, timeout: timedelta | float | str | None = None) -> R:
        """Wait for the task to complete and return what its handler returned.

        `timeout`: as in `wait`. Raises TaskDead if it died, TaskCancelled if it was cancelled, NotFinished
        if it has not ended in time.
        """
        task = await self.wait(timeout)
        if task.state is State.DEAD:
            raise TaskDead(f"task {self.id} died: {_described(task)}; see `windlass tasks show {self.id}`")
        if task.state is State.CANCELLED:
            raise TaskCancelled(f"task {self.id} was cancelled: {_described(task)}")
        result: R = decode_result(task.result, self._result_type)
        return result

    async def cancel(self, *, by: str = "client", why: str = "") -> None:
        """Cancel the task; if it is running, ask its handler to stop.

        `by` and `why` are for the audit log. Raises TaskFinished if it has already ended.
        """
        await self._store.open()
        action = CancelTasks(by=By(who=by, why=why))
        if not await self._store.apply(action, Filter(ids=(self.id,)), 1):
            task = await self.task()
            raise TaskFinished(f"task {self.id} has already ended: it is {task.state}")


def decode_result(result: bytes | None, result_type: Any) -> Any:
    """Decode a result as the handler's return type, or as plain JSON values if it no longer fits that."""
    if result is None:
        return None
    try:
        return msgspec.json.decode(result, type=result_type)
    except msgspec.ValidationError:
        return msgspec.json.decode(result)


def _described(task: Task) -> str:
    return f"{task.error.type}: {task.error.message}" if task.error else "no reason was recorded"
