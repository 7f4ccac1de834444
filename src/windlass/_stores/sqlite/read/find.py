"""Reads for clients and operators, on the reader thread. Each is short: commits wait while one is running."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ...._model.attempt import MAX_RECORDED, Attempt
from ...._model.filter import Count, Dimension, Filter, Page, Slice, page_of
from ...._model.limit import Usage
from ...._model.record import KINDS, Record
from ...._model.task import Task, TaskId
from ...._policy.order.limits import PermitUsage
from ...records import record_rows, slice_of
from ...rules.queue_rules import read_rules
from ...rules.usage import usages
from ..rows import Row, listed, moment, read_attempt, read_running, statement, task_reader
from .filters import (
    Query,
    count_query,
    count_states_query,
    is_by_state,
    is_selective,
    page_query,
    state_size_queries,
)

R = TypeVar("R", bound=Record)

WINDOW = 20_000
"""Rows that one statement scans when no index finds the matches: about 20 ms."""

_BEYOND_ALL = chr(0x10FFFF)  # sorts after every id
_RECORDS = record_rows(moment)


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a poll of the file found."""

    version: int | None = None  # changes with every commit of another connection
    ready: bool = False  # one of the queues has ready tasks and is not paused
    next_due: int | None = None  # of scheduled tasks, in microseconds


class Reader:
    """Reads on a connection of their own."""

    def __init__(self, connection: sqlite3.Connection, window: int = WINDOW) -> None:
        self._connection = connection
        self._window = window

    def find(self, where: Filter, page: Page) -> Slice[Task]:
        """Return the tasks that match, by id."""
        found = self._page("find", where, replace(page, limit=page.limit + 1))
        return slice_of(found, page, task_reader())

    def find_ids(self, where: Filter, page: Page) -> Slice[TaskId]:
        """Return the ids of the tasks that match."""
        found = self._page("find_ids", where, replace(page, limit=page.limit + 1))
        return slice_of(found, page, lambda row: str(row[0]))

    def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> list[Count]:
        """Count the matches; exact if an index finds them or one window covers the table.

        Several windows are added up while tasks change. States with few tasks are counted by their indexes.
        """
        numbers: Counter[tuple[str, ...]] = Counter()
        steps: Counter[tuple[str, ...]] = Counter()
        sizes: Counter[tuple[str, ...]] = Counter()
        oldest: dict[tuple[str, ...], int] = {}
        page, edge, windows = Page(), None, 0
        by_state = is_by_state(where) and self._are_few(where)
        while windows == 0 or edge is not None:
            edge = None if by_state or is_selective(where) else self._edge(page)
            if by_state:
                query = count_states_query(where, by, sized=sized)
            else:
                query = count_query(where, by, (page.cursor, edge), sized=sized)
            for number, due_at, following, size, *key in self._select(query):
                values = tuple([value or "" for value in key])
                numbers[values] += number
                steps[values] += following
                sizes[values] += size
                if due_at is not None:
                    oldest[values] = min(due_at, oldest.get(values, due_at))
            page, windows = replace(page, cursor=edge), windows + 1
        exact = windows == 1
        return [
            Count(
                values=values,
                number=numbers[values],
                exact=exact,
                oldest_at=moment(oldest[values]) if values in oldest else None,
                steps=steps[values],
                bytes=sizes[values],
            )
            for values in sorted(numbers)
        ]

    def ended(self, ids: Sequence[TaskId]) -> list[TaskId]:
        """Return those of these tasks that have ended or are not stored."""
        return [task_id for (task_id,) in self._rows("ended", {"ids": listed(ids)})]

    def attempts(self, task_id: TaskId) -> list[Attempt]:
        """Return the recorded attempts of a task, oldest first."""
        rows = self._rows("attempts", {"id": task_id})
        # A completion comes on top of those that are recorded.
        return [read_attempt(task_id, row) for row in rows[-MAX_RECORDED:]]

    def records(self, kind: type[R], page: Page) -> Slice[R]:
        """Return the records of a kind, by name."""
        name, read, key = _RECORDS[kind]
        return slice_of(self._paged(name, page, KINDS.get(kind)), page, read, key)

    def usages(self, page: Page, now: datetime) -> Slice[Usage]:
        """Return a page of the permits in use, by key."""
        limits = read_rules(tuple(self._rows("rules", {}))).limits
        left = {key: (tokens, moment(at)) for key, tokens, at in self._paged("all_buckets", page)}
        holding = read_running(self._rows("limited", {}))
        used = {key: PermitUsage(holding[key], *left.get(key, (None, None))) for key in {*holding, *left}}
        return page_of(usages(limits, used, now), page, lambda usage: usage.name)

    def _paged(self, name: str, page: Page, kind: str | None = None) -> list[Row]:
        cut = {"kind": kind, "after": page.cursor or "", "before": page.cursor, "limit": page.limit + 1}
        return self._rows(f"{name}_back" if page.newest_first else name, cut)

    def poll(self, queues: Sequence[str], seen: Snapshot) -> Snapshot:
        """Return what listeners of wakes look for. Costs about ten microseconds if nothing was committed."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version == seen.version:
            return seen
        is_ready = bool(self._rows("any_ready", {"queues": listed(queues)}))
        due = self._rows("next_due", {})
        return Snapshot(version=version, ready=is_ready, next_due=due[0][0] if due else None)

    # -- windows -------------------------------------------------------------------------------------

    def _page(self, name: str, where: Filter, page: Page) -> list[Row]:
        """Read a page; without an index, window by window until it is full or the table ends."""
        if is_selective(where):
            return self._select(page_query(name, where, page))
        found: list[Row] = []
        edge: str | None = ""
        while edge is not None and len(found) < page.limit:
            edge = self._edge(page)
            found += self._select(page_query(name, where, replace(page, limit=page.limit - len(found)), edge))
            page = replace(page, cursor=edge, limit=page.limit)
        return found

    def _are_few(self, where: Filter) -> bool:
        """Whether the tasks of these states fit into one window."""
        room = self._window
        for query in state_size_queries(where, room + 1):
            room -= self._select(query)[0][0]
        return room >= 0

    def _edge(self, page: Page) -> str | None:
        """Return the last id of the next window; None if it covers the rest of the table."""
        start = page.cursor or (_BEYOND_ALL if page.newest_first else "")
        rows = self._rows(
            "window_back" if page.newest_first else "window", {"start": start, "rows": self._window}
        )
        return rows[0][0] if rows else None

    def _select(self, query: Query) -> list[Row]:
        return self._connection.execute(query.sql, query.parameters).fetchall()

    def _rows(self, name: str, parameters: Mapping[str, object]) -> list[Row]:
        return self._connection.execute(statement(name), parameters).fetchall()
