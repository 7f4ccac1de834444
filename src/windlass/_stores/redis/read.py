"""Find, count and attempts: by an index that serves the filter, else by a walk through all tasks.

All ids are in one sorted set, by which pages walk. Groups (state, queue, type, tenant) have sorted sets of
their own, in another order: their ids are read and sorted here if the walk does not find a page soon.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import msgpack
from msgspec.structs import replace

from ..._model.attempt import MAX_RECORDED, Attempt
from ..._model.filter import Count, Dimension, Filter, Page, Slice
from ..._model.state import State
from ..._model.task import Task, TaskId
from ..rules.filters import matches
from ..rules.sizes import bytes_of, steps_to_come
from .database import Database
from .keys import SEPARATOR, packed, unpacked
from .rows import Stored, instant, moment, read_task

WINDOW = 200
"""Tasks that are read at once: a few milliseconds for the server."""

FEW_WINDOWS = 5
"""Windows of a walk through all tasks before the ids of all that may match are read instead."""

MOST = 1_000_000
"""Ids that are read and sorted here; with more, the walk goes on."""

MANY = 5_000
"""Expired tasks that one search finds, those that expired first; the keeper searches every second."""

_read_attempt = msgpack.Decoder(Attempt).decode


class Group:
    """A state, queue, type and tenant that has tasks, or had."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state, self.queue, self.type, self.tenant = name.split(SEPARATOR)

    def is_in(self, where: Filter) -> bool:
        """Whether its tasks match what a filter says about groups."""
        return (
            (where.states is None or self.state in where.states)
            and (where.queues is None or self.queue in where.queues)
            and (where.types is None or self.type in where.types)
            and (where.tenants is None or self.tenant in where.tenants)
        )


class Reader:
    """Readings of one store. None is guarded: what is read may have changed by the time it arrives."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._client = database.client
        self._keys = database.keys

    # -- tasks ---------------------------------------------------------------------------------------

    async def load(self, ids: Sequence[TaskId]) -> list[Stored]:
        """Read those of these tasks that exist, in this order."""
        found: list[Stored] = []
        for at in range(0, len(ids), WINDOW):
            some = ids[at : at + WINDOW]
            rows = await self._client.run("load", [self._keys.meta], [self._keys.prefix, *map(packed, some)])
            found += [
                read_task(task_id, row, *document)
                for task_id, (row, *document) in zip(some, rows, strict=True)
                if row is not None
            ]
        return found

    async def ended(self, ids: Sequence[TaskId]) -> list[TaskId]:
        """Return those of these tasks that have ended or are not stored."""
        packed_ids = map(packed, ids)
        found = await self._client.run("ended", [self._keys.meta], [self._keys.prefix, *packed_ids])
        return [ids[position - 1] for position in found]

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        """Return a page of the tasks that match, ordered by id."""
        found: list[Task] = []
        async for task in self.matching(where, page):
            found.append(task)
            if len(found) > page.limit:
                break
        items = tuple(found[: page.limit])
        return Slice(items=items, cursor=items[-1].id if items and len(found) > page.limit else None)

    async def matching(self, where: Filter, page: Page) -> AsyncIterator[Task]:
        """Yield the tasks that match, in the order of the page and from its cursor on."""
        async for ids in self._candidates(where, page):
            for stored in await self.load(ids):
                if matches(stored.task, where):
                    yield stored.task

    async def _candidates(self, where: Filter, page: Page) -> AsyncIterator[list[TaskId]]:
        """Yield the ids of all tasks that may match, in order, some at a time."""
        named = await self._named(where)
        if named is None and replace(where, states=None, queues=None, types=None, tenants=None) == where:
            async for ids in self._walk(page, None):  # which has those that move between groups, too
                yield ids
            return
        if named is None:
            groups = await self._sizes(await self.groups(where))
            total = sum(groups.values())
            windows = FEW_WINDOWS if total <= MOST else None
            if total > WINDOW:  # The first page is often near: read all ids only if it is not.
                walked = 0
                async for ids in self._walk(page, windows):
                    yield ids
                    page = replace(page, cursor=ids[-1])
                    walked += 1
                if windows is None or walked < windows:
                    return
            named = await self._of_groups(groups)
        for ids in _after(named, page):
            yield ids

    async def _named(self, where: Filter) -> list[TaskId] | None:
        """Return the tasks of an index of few tasks that serves a filter; None if there is none."""
        if where.ids is not None:
            return list(where.ids)
        if where.root is not None:
            found = await self._client.call("SMEMBERS", self._keys.root(where.root))
            return [where.root, *(one.decode() for one in found)]
        if where.idempotency_key is not None:
            found = await self._client.call("SMEMBERS", self._keys.with_key(where.idempotency_key))
            return [one.decode() for one in found]
        if where.expires_before is not None and where.is_expiring:
            before = f"({instant(where.expires_before)}"
            found = await self._client.call(
                "ZRANGEBYSCORE", self._keys.expiring, "-inf", before, "LIMIT", 0, MANY
            )
            return [unpacked(one) for one in found]
        return None

    async def ids_of(self, groups: Sequence[Group]) -> list[TaskId]:
        """Return the ids of all tasks of groups, in no order; of tasks that move meanwhile, maybe not."""
        return await self._of_groups(await self._sizes(groups))

    async def _sizes(self, groups: Sequence[Group]) -> dict[Group, int]:
        """Return how many tasks each group has."""
        numbers = await self._client.call_all([("ZCARD", self._key(group)) for group in groups])
        return dict(zip(groups, numbers, strict=True))

    async def _of_groups(self, groups: Mapping[Group, int]) -> list[TaskId]:
        """Return the ids of all tasks of groups."""
        small = [group for group, number in groups.items() if number <= WINDOW]
        found = await self._client.call_all([("ZRANGE", self._key(group), 0, -1) for group in small])
        ids = [unpacked(one) for some in found for one in some]
        for group, number in groups.items():
            if number > WINDOW:
                scanned = [one async for one in self._client.scan("ZSCAN", self._key(group))]
                ids += map(unpacked, scanned[::2])
        return ids

    async def _walk(self, page: Page, windows: int | None) -> AsyncIterator[list[TaskId]]:
        """Yield all ids from the cursor on, a window at a time and at most so many windows."""
        cursor = page.cursor
        size = min(max(page.limit + 1, 1), WINDOW)
        while windows is None or windows > 0:
            edge = b"(" + packed(cursor) if cursor is not None else (b"+" if page.newest_first else b"-")
            command, end = ("ZREVRANGEBYLEX", "-") if page.newest_first else ("ZRANGEBYLEX", "+")
            found = await self._client.call(command, self._keys.ids, edge, end, "LIMIT", 0, size)
            ids = [unpacked(one) for one in found]
            if ids:
                yield ids
            if len(ids) < size:
                return
            cursor, size = ids[-1], WINDOW
            windows = None if windows is None else windows - 1

    # -- counts --------------------------------------------------------------------------------------

    async def groups(self, where: Filter) -> list[Group]:
        """Return the groups whose tasks match what a filter says about groups."""
        found = [Group(name) for name in set(await self._client.members(self._keys.groups))]
        return [group for group in found if group.is_in(where)]

    def _key(self, group: Group) -> str:
        return f"{self._keys.prefix}g:{group.name}"

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool) -> list[Count]:
        """Count the tasks that match: by the sizes of groups if those decide, else by reading the tasks."""
        others = replace(where, states=None, queues=None, types=None, tenants=None)
        if sized or others != Filter() or Dimension.FAILURE in by:
            tasks = [task async for task in self.matching(where, Page(limit=WINDOW))]
            return _counted(tasks, by, sized=sized)
        groups = await self.groups(where)
        replies = await self._client.call_all(
            [
                command
                for group in groups
                for command in (("ZCARD", self._key(group)), ("ZRANGE", self._key(group), 0, 0, "WITHSCORES"))
            ]
        )
        numbers: Counter[tuple[str, ...]] = Counter()
        oldest: dict[tuple[str, ...], datetime] = {}
        for group, number, first in zip(groups, replies[::2], replies[1::2], strict=True):
            if number and first:
                values = tuple(str(getattr(group, dimension.value)) for dimension in by)
                numbers[values] += number
                due = moment(first[1])
                oldest[values] = min(due, oldest.get(values, due))
        if not by and not numbers:
            return [Count(values=(), number=0)]
        return [
            Count(values=values, number=number, oldest_at=oldest[values])
            for values, number in sorted(numbers.items())
        ]

    # -- attempts ------------------------------------------------------------------------------------

    async def attempts(self, task_id: TaskId) -> list[Attempt]:
        """Return the recorded attempts of a task, oldest first."""
        lines = [
            _read_attempt(line)
            for line in await self._client.call("LRANGE", self._keys.attempts(task_id), 0, -1)
        ]
        for stored in await self.load([task_id]):
            last = _last_attempt(stored)
            if last is not None and last.fence not in {line.fence for line in lines}:
                lines.append(last)
        return lines[-MAX_RECORDED:]


def _after(ids: Iterable[TaskId], page: Page) -> Iterator[list[TaskId]]:
    """Put ids in the order of a page and yield those behind its cursor, some at a time."""
    cursor, newest_first = page.cursor, page.newest_first
    ordered = sorted(set(ids), reverse=newest_first)
    if cursor is not None:
        ordered = [one for one in ordered if (one < cursor if newest_first else one > cursor)]
    size = min(max(page.limit + 1, 1), WINDOW)
    for at in range(0, len(ordered), size):
        yield ordered[at : at + size]


def _last_attempt(stored: Stored) -> Attempt | None:
    """Return the attempt that completed a task, which is recorded in the task itself."""
    task = stored.task
    if task.state is not State.COMPLETED or stored.outcome is None or task.finished_at is None:
        return None
    return Attempt(
        task_id=task.id,
        number=task.attempt,
        fence=task.fence,
        worker=task.worker,
        claimed_at=task.claimed_at or task.finished_at,
        finished_at=task.finished_at,
        duration=task.duration or 0.0,
        outcome=stored.outcome,
        trace=task.trace,
    )


def _counted(tasks: Iterable[Task], by: Sequence[Dimension], *, sized: bool) -> list[Count]:
    found: dict[tuple[str, ...], list[Task]] = {} if by else {(): []}
    for task in tasks:
        values = tuple(str(getattr(task, dimension.value) or "") for dimension in by)
        found.setdefault(values, []).append(task)
    return [
        Count(
            values=values,
            number=len(some),
            oldest_at=min((task.due_at for task in some), default=None),
            steps=sum(map(steps_to_come, some)) if sized else 0,
            bytes=sum(map(bytes_of, some)) if sized else 0,
        )
        for values, some in sorted(found.items())
    ]
