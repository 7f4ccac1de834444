"""Tell who waits for a task, or has just enqueued one, that no live worker would run it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from time import monotonic
from weakref import WeakKeyDictionary

from ..._model.record import Session
from ..._model.state import PENDING
from ..._model.task import NewTask, Task
from ..._policy.live_workers import LiveWorkers
from ..._store.protocol import Capability, Store, all_records
from ...errors import WindlassError
from ..blocking_calls import is_on_event_loop

logger = logging.getLogger("windlass.client")

HINT_AFTER = 2.0  # seconds of waiting
_LOOK_AT_MOST_EVERY = 1.0  # seconds, however many wait
_MAX_TOLD = 1_000
_LOOK_FOR = 1.0  # seconds that the first enqueue into a queue waits at most to learn who serves it


async def why_unserved(store: Store, task: Task) -> str:
    """Return why no live worker would run a task that has not started, and what to do; "" if one would."""
    if task.state not in PENDING:
        return ""
    live = await _read_live(store)
    if live.handles(task.queue, task.type):
        return ""
    lacks = f"has a handler for {task.type}" if live.serves(task.queue) else f"serves queue {task.queue}"
    return _text(store, lacks)


async def tell_enqueuer(store: Store, batch: Sequence[NewTask]) -> None:
    """Log a warning, once for each queue, if no live worker serves the queue of a task just enqueued.

    Reads from the store only for queues that this process enqueues into for the first time. Nothing is told
    of a store that other processes cannot use: its worker may start later.
    """
    if not is_first(store, batch):
        return
    hints = _hints_of(store)
    first = {one.queue: one for one in batch if one.queue not in hints.enqueued}
    hints.enqueued.update(first)
    with suppress(WindlassError, TimeoutError):  # the tasks are enqueued, and a key may not show workers
        async with asyncio.timeout(_LOOK_FOR) if is_on_event_loop() else nullcontext():
            live = await hints.live_workers(store)
        for queue, task in first.items():
            if not live.serves(queue):
                why = _text(store, f"serves queue {queue}")
                logger.warning("task %s is enqueued, but %s", task.id, why, extra={"task_id": task.id})


def _text(store: Store, lacks: str) -> str:
    """Return what no live worker does, where, and what to do.

    Workers may be live in another store: the same relative SQLite URL is another file in another folder.
    """
    name = _hints_of(store).store_name
    return f"no live worker {lacks}{f' (store {name})' if name else ''}; `windlass worker APP` starts one"


def name_store(store: Store, name: str) -> None:
    """Name a store in what is told of it, without passwords."""
    _hints_of(store).store_name = name


def is_first(store: Store, batch: Sequence[NewTask]) -> bool:
    """Whether a task of these is the first that this process enqueues into its queue."""
    if Capability.SHARE not in store.capabilities:
        return False
    known = _hints_of(store).enqueued
    return len(known) < _MAX_TOLD and not all(one.queue in known for one in batch)


def never_tell_enqueuer(store: Store) -> Callable[[], None]:
    """Tell nothing of enqueues into this store: of a test, or of a server, which enqueues for others.

    Call what it returns to undo that.
    """
    hints = _hints_of(store)
    before, hints.enqueued = hints.enqueued, _EveryQueue()
    return partial(setattr, hints, "enqueued", before)


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
        self.store_name = ""
        self.enqueued: set[str] = set()  # queues that were enqueued into
        self._live = LiveWorkers(())
        self._live_until = 0.0
        self._next_look = 0.0

    async def live_workers(self, store: Store) -> LiveWorkers:
        """Return the live workers, as of a moment ago."""
        if monotonic() >= self._live_until:
            self._live = await _read_live(store)
            self._live_until = monotonic() + _LOOK_AT_MOST_EVERY
        return self._live

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


async def _read_live(store: Store) -> LiveWorkers:
    now = await store.now()
    return LiveWorkers(one.worker for one in await all_records(store, Session) if one.expires_at > now)


class _EveryQueue(set[str]):
    """A set that has every queue."""

    def __contains__(self, _: object) -> bool:
        return True


def _hints_of(store: Store) -> _Hints:
    found = _all_hints.get(store)
    return _all_hints.setdefault(store, _Hints()) if found is None else found


_all_hints: "WeakKeyDictionary[Store, _Hints]" = WeakKeyDictionary()
