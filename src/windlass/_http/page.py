"""Pages of tasks that are bounded in bytes: a page ends early, with its cursor, if its tasks are large."""

from asyncio import Semaphore
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec.structs import replace

from .._model.filter import Page, Slice
from .._model.task import Task

MAX_PAGE_BYTES = 4 << 20
"""Payloads, results and steps of the tasks of one page; it has at least one task, however large."""

_FIRST, _MOST = 8, 80  # tasks read at once
_AT_ONCE = 2  # pages read at the same time: each may hold as many of the largest tasks as are read at once

Find: TypeAlias = Callable[[Page], Awaitable[Slice[Task]]]


class PageReader:
    """Reads pages in parts, so that tasks beyond the bound are not read at all."""

    def __init__(self) -> None:
        self._reads = Semaphore(_AT_ONCE)

    async def read(self, find: Find, page: Page) -> Slice[Task]:
        """Return a page of what `find` finds: as many tasks as wanted, or as fit."""
        async with self._reads:
            return await self._read(find, page)

    async def _read(self, find: Find, page: Page) -> Slice[Task]:
        items: list[Task] = []
        size, number, cursor = 0, _FIRST, page.cursor
        while True:
            number = min(number, page.limit - len(items))
            part = await find(replace(page, limit=number, cursor=cursor))
            for task in part.items:
                size += size_of(task)
                if size > MAX_PAGE_BYTES and items:
                    return Slice(items=tuple(items), cursor=items[-1].id)
                items.append(task)
            cursor = part.cursor
            if cursor is None or len(items) >= page.limit:
                return Slice(items=tuple(items), cursor=cursor)
            number = min(number * 2, _MOST)


def size_of(task: Task) -> int:
    """Return about how many bytes of JSON a task is, without the fields that are short."""
    return len(task.payload) + len(task.result or b"") + len(task.next or b"")
