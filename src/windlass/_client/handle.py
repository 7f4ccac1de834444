"""A handle on one task: ask how it is, wait for its end, stop it."""

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

_FIRST_LOOK, _LAST_LOOK = 0.005, 0.25


class Handle(Generic[R]):
    """One task, seen from a program. It holds no state but the id; every question asks the store."""

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
        self.created = created  # False: it stood already (the same idempotency key)
        self.following = following  # the ids of the tasks that follow in its chain, when their time comes
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    async def task(self) -> Task:
        """The task as it is now; NotFound once its record has been pruned."""
        await self._store.open()
        found = await self._store.find(Filter(ids=(self.id,)), Page(limit=1))
        if not found.items:
            raise NotFound(
                f"there is no task {self.id}: it was never enqueued here, or its record was pruned"
            )
        return found.items[0]

    async def state(self) -> State:
        """Where it is in its life."""
        return (await self.task()).state

    async def progress(self) -> Progress | None:
        """What its handler last said of how far it has come."""
        return (await self.task()).progress

    async def wait(self, timeout: timedelta | float | str | None = None) -> Task:
        """The task once it has ended; NotFinished if that takes longer than `timeout`."""
        limit = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        loop = asyncio.get_running_loop()
        deadline = None if limit is None else loop.time() + limit
        pause = _FIRST_LOOK
        while (task := await self.task()).state not in ENDED:
            if deadline is not None and loop.time() >= deadline:
                raise NotFinished(
                    f"task {self.id} is still {task.state} after {limit:g} s; it goes on regardless"
                )
            left = pause if deadline is None else min(pause, deadline - loop.time())
            await asyncio.sleep(max(left, 0))
            pause = min(pause * 1.5, _LAST_LOOK)
        return task

    async def result(self, timeout: timedelta | float | str | None = None) -> R:
        """What the handler returned; raises TaskDead, TaskCancelled or NotFinished if there is nothing."""
        task = await self.wait(timeout)
        if task.state is State.DEAD:
            raise TaskDead(f"task {self.id} died: {_described(task)}; see `windlass tasks show {self.id}`")
        if task.state is State.CANCELLED:
            raise TaskCancelled(f"task {self.id} was cancelled: {_described(task)}")
        result: R = decode_result(task.result, self._result_type)
        return result

    async def cancel(self, *, by: str = "client", why: str = "") -> None:
        """Never start it, or ask it to stop; TaskFinished if it has ended."""
        await self._store.open()
        action = CancelTasks(by=By(who=by, why=why))
        if not await self._store.apply(action, Filter(ids=(self.id,)), 1):
            task = await self.task()
            raise TaskFinished(f"task {self.id} is {task.state} already, and an end is final")


def decode_result(result: bytes | None, result_type: Any) -> Any:
    """A result as the handler's return type, or as plain JSON values where that does not fit any more."""
    if result is None:
        return None
    try:
        return msgspec.json.decode(result, type=result_type)
    except msgspec.ValidationError:
        return msgspec.json.decode(result)


def _described(task: Task) -> str:
    return f"{task.error.type}: {task.error.message}" if task.error else "no reason was recorded"
