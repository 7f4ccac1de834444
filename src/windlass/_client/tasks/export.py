"""Export of ended tasks with their attempts: oldest end first, from any point on."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from ..._model.attempt import Attempt
from ..._model.filter import MAX_PAGE, Filter, Page
from ..._model.state import ENDED
from ..._model.task import Task, TaskId, is_task_id
from ..._policy.input.options import checked_instant
from ..._policy.input.quote import quoted
from ..._policy.secrets.shown import masked_attempt, task_mask
from ..._store.protocol import Store
from ...errors import InvalidOption
from ..published_types import KnownTypes

SETTLING = timedelta(seconds=5)
"""Age that an end must have to be exported. Ends become visible in order of their commits, which may differ
from the order of their instants by as long as a commit takes; an export that went on to the very present
could pass over one, and would not find it when it is resumed."""

MAX_TASKS = 10_000
MAX_BYTES = 64 << 20
"""What is read and sorted at a time: tasks, and bytes of their payloads and results."""

_FIRST_SPAN = timedelta(hours=1)
_LONGEST_SPAN = timedelta(days=3650)
_INSTANT = timedelta(microseconds=1)  # the resolution of every store
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = 8  # reads of attempts
_TAKEN, _TAKEN_BYTES = 100, 1 << 20


class EndedTask(Struct, frozen=True, kw_only=True):
    """A task that has ended, and its attempts."""

    task: Task
    attempts: Sequence[Attempt] = ()

    @property
    def cursor(self) -> str:
        """Where an export goes on after this task: the instant of its end and its id."""
        return cursor_text(self.task.finished_at or _BEGINNING, self.task.id)


def cursor_text(finished_at: datetime, task_id: TaskId) -> str:
    """Return the cursor of a task that ended at this instant."""
    return f"{finished_at.astimezone(UTC).isoformat().replace('+00:00', 'Z')},{task_id}"


def parse_cursor(text: str) -> tuple[datetime, TaskId]:
    """Read a cursor. Raises InvalidOption."""
    instant, _, task_id = text.partition(",")
    try:
        finished_at = checked_instant(datetime.fromisoformat(instant), "cursor")
    except (ValueError, InvalidOption):
        finished_at = None
    if finished_at is None or not is_task_id(task_id):
        raise InvalidOption(
            f"{quoted(text)} is not a cursor of an export: the `finished_at` and `id` of the last task, "
            f"separated by a comma"
        )
    return finished_at, task_id


async def next_ones(exported: AsyncIterator[EndedTask]) -> list[EndedTask]:
    """Return the next tasks of an export: at most a hundred, fewer if they are large; none at its end."""
    taken: list[EndedTask] = []
    size = 0
    while len(taken) < _TAKEN and size < _TAKEN_BYTES and (ended := await anext(exported, None)) is not None:
        taken.append(ended)
        size += len(ended.task.payload) + len(ended.task.result or b"")
    return taken


async def export_tasks(
    store: Store, types: KnownTypes, where: Filter, after: str | None = None
) -> AsyncGenerator[EndedTask, None]:
    """Yield the ended tasks that match, oldest end first; with a cursor, those that follow it.

    Stores list tasks by id, so this reads spans of time, as long as fit into memory, and sorts each.
    """
    position = None if after is None else parse_cursor(after)
    await store.open()
    if where.states is not None and ENDED.isdisjoint(where.states):
        return
    reader = _Reader(store, where, position, await store.now() - SETTLING)
    async for tasks in reader.batches():
        for start in range(0, len(tasks), _AT_ONCE):
            some = await types.with_result_secrets(tasks[start : start + _AT_ONCE])
            attempts = await asyncio.gather(*(_attempts(store, task) for task in some))
            for task, made in zip(some, attempts, strict=True):
                yield EndedTask(task=task, attempts=made)


async def _attempts(store: Store, task: Task) -> Sequence[Attempt]:
    if not task.fence:  # Without a claim there are none.
        return ()
    mask = task_mask(task)
    return [masked_attempt(one, mask) for one in await store.attempts(task.id)]


class _Reader:
    """Reads ended tasks in the order of their ends."""

    def __init__(
        self, store: Store, where: Filter, position: tuple[datetime, TaskId] | None, now: datetime
    ) -> None:
        states = tuple(state for state in where.states or sorted(ENDED) if state in ENDED)
        self._store = store
        self._where = replace(where, states=states)
        self._position = position
        starts = [_BEGINNING, where.finished_after or _BEGINNING]
        self._start = max([*starts, position[0]] if position else starts)
        self._stop = min(now, where.finished_before or now)

    async def batches(self) -> AsyncIterator[list[Task]]:
        """Yield sorted batches, each after those before it."""
        start = await self._first_end()
        span = _FIRST_SPAN
        while start is not None and start < self._stop:
            end = min(start + span, self._stop)
            found, complete = await self._between(start, end)
            if complete:
                yield self._following(found)
                start = end
                if 2 * len(found) <= MAX_TASKS:
                    span = min(span * 2, _LONGEST_SPAN)
            elif (middle := _middle(found)) > start:
                span = middle - start
            else:  # Many tasks ended in one transaction, at the same instant: the order is that of the ids.
                async for page in self._pages(start, start + _INSTANT):
                    yield self._following(page)
                start, span = start + _INSTANT, _FIRST_SPAN

    def _following(self, tasks: list[Task]) -> list[Task]:
        ordered = sorted(tasks, key=_order)
        return ordered if self._position is None else [one for one in ordered if _order(one) > self._position]

    async def _first_end(self) -> datetime | None:
        """Return an instant before which no task ended; None if there are none at all.

        Tasks end after they were created, so usually none ended before the first one was created.
        """
        found = await self._find(self._start, self._stop, Page(limit=1))
        if not found:
            return None
        guess = max(self._start, min(found[0].created_at, self._stop))
        return self._start if await self._find(self._start, guess, Page(limit=1)) else guess

    async def _between(self, start: datetime, end: datetime) -> tuple[list[Task], bool]:
        """Return tasks that ended in a span of time, and whether these are all of them."""
        tasks: list[Task] = []
        size = 0
        async for page in self._pages(start, end):
            tasks += page
            size += sum(len(task.payload) + len(task.result or b"") for task in page)
            if len(tasks) > MAX_TASKS or (size > MAX_BYTES and len(tasks) > 1):
                return tasks, False
        return tasks, True

    async def _pages(self, start: datetime, end: datetime) -> AsyncIterator[list[Task]]:
        page = Page(limit=MAX_PAGE)
        where = replace(self._where, finished_after=start, finished_before=end)
        while True:
            found = await self._store.find(where, page)
            yield list(found.items)
            if found.cursor is None:
                return
            page = replace(page, cursor=found.cursor)

    async def _find(self, start: datetime, end: datetime, page: Page) -> Sequence[Task]:
        if start >= end:
            return ()
        where = replace(self._where, finished_after=start, finished_before=end)
        return (await self._store.find(where, page)).items


def _order(task: Task) -> tuple[datetime, TaskId]:
    return task.finished_at or _BEGINNING, task.id


def _middle(tasks: list[Task]) -> datetime:
    """Return the instant by which half of these tasks had ended."""
    return sorted(map(_order, tasks))[len(tasks) // 2][0]
