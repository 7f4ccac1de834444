"""Tell who waits for a task that no live worker would run it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from weakref import WeakKeyDictionary

from ..._model.record import Session
from ..._model.state import PENDING
from ..._model.task import Task
from ..._store.protocol import Store, all_records
from ...errors import WindlassError

logger = logging.getLogger("windlass.client")

HINT_AFTER = 2.0  # seconds of waiting
_LOOK_AT_MOST_EVERY = 1.0  # seconds, however many wait
_MAX_TOLD = 1_000


async def why_unserved(store: Store, task: Task) -> str:
    """Return why no live worker would run a task that has not started, and what to do; "" if one would."""
    if task.state not in PENDING:
        return ""
    now = await store.now()
    live = [one.worker for one in await all_records(store, Session) if one.expires_at > now]
    serving = [worker for worker in live if worker.serves(task.queue)]
    if any(worker.handles(task.type) for worker in serving):
        return ""
    lacks = f"has a handler for {task.type}" if serving else f"serves queue {task.queue}"
    return f"no live worker {lacks}; `windlass worker APP` starts one"


@asynccontextmanager
async def told_if_unserved(
    store: Store, read: Callable[[], Awaitable[Task]], tell: Callable[[Task, str], object] | None = None
) -> AsyncIterator[None]:
    """Within the block, tell after a moment if no live worker would run the task that `read` returns.

    By a warning in the log, once for each queue and type, unless there is `tell`.
    """
    hint = asyncio.create_task(_hint(store, read, tell or _hints_of(store).log))
    try:
        yield
    finally:
        hint.cancel()


async def _hint(
    store: Store, read: Callable[[], Awaitable[Task]], tell: Callable[[Task, str], object]
) -> None:
    hints = _hints_of(store)
    while True:
        await asyncio.sleep(HINT_AFTER)
        if hints.may_look():
            break
    with suppress(WindlassError):  # a key may not show workers; and whatever else fails is for the waiting
        task = await read()
        if why := await why_unserved(store, task):
            tell(task, why)


class _Hints:
    """What programs that wait on a store were told, and when a worker was last looked for."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._next_look = 0.0

    def may_look(self) -> bool:
        now = monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_AT_MOST_EVERY
        return True

    def log(self, task: Task, why: str) -> None:
        if why not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(why)
            logger.warning("waiting for task %s: %s", task.id, why, extra={"task_id": task.id})


def _hints_of(store: Store) -> _Hints:
    return _all_hints.setdefault(store, _Hints())


_all_hints: "WeakKeyDictionary[Store, _Hints]" = WeakKeyDictionary()
