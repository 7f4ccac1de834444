"""Read pages of tasks, a task's attempts, and pages of records."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from ...._model.attempt import MAX_RECORDED, Attempt
from ...._model.filter import Filter, Page, Slice
from ...._model.record import KINDS, Audit, Record
from ...._model.state import State
from ...._model.task import Task, TaskId, is_task_id
from ...records import record_rows, slice_of
from ..rows import Row, ids_of, read_attempt, read_task
from ..script import Query, Source
from ..statements import compose
from .filters import (
    TASK,
    Parameters,
    Search,
    by_state_index,
    conditions,
    in_states,
    is_text,
    named,
    search_for,
)

R = TypeVar("R", bound=Record)

FEW = 20_000
"""Up to this many tasks of a state are all read for a page; with more, a scan by id soon fills one."""

_INDEXED_BY_ID = frozenset({State.DEAD, State.WAITING})
"""States whose index is in the order of a page."""

_RECORDS = record_rows(lambda at: at)


async def find(source: Source, where: Filter, page: Page) -> Slice[Task]:
    found = await _page(source, "find", where, page)
    return slice_of(found, page, read_task)


async def find_ids(source: Source, where: Filter, page: Page) -> Slice[TaskId]:
    found = await _page(source, "find_ids", where, page)
    return slice_of(found, page, lambda row: str(row[0]))


async def ended(source: Source, ids: Sequence[TaskId]) -> list[TaskId]:
    rows = await source.fetch(Query("ended", (ids_of(ids),)))
    return [str(row[0]) for row in rows] + [task_id for task_id in ids if not is_task_id(task_id)]


async def attempts(source: Source, task_id: TaskId) -> list[Attempt]:
    if not is_task_id(task_id):
        return []
    rows = await source.fetch(Query("attempts", (task_id, MAX_RECORDED)))
    return [read_attempt(task_id, row) for row in reversed(rows)]


async def records(source: Source, kind: type[R], page: Page) -> Slice[R]:
    name, read, key = _RECORDS[kind]
    cursor = page.cursor
    if cursor is not None and not (is_task_id(cursor) if kind is Audit else is_text(cursor)):
        return Slice(items=())
    which = (KINDS[kind],) if kind in KINDS else ()
    statement = f"{name}_back" if page.newest_first else name
    found = await source.fetch(Query(statement, (cursor, page.limit + 1, *which)))
    return slice_of(found, page, read, key)


# -- pages of tasks ----------------------------------------------------------------------------------


class TableSearch(Struct, frozen=True):
    """How to find rows of one table: by a scan in the order of ids, or by a branch for each index."""

    alias: str
    name: str
    branches: list[list[str]]
    by_id: bool


async def _page(source: Source, name: str, where: Filter, page: Page) -> list[Row]:
    """Return the rows of a page and one more, if there is one; by one statement for both tables."""
    search, parameters, schema = search_for(where), Parameters(), source.address.schema
    if page.cursor is not None and not is_task_id(page.cursor):
        return []
    tables = []
    if search.task:
        branches, by_id = await _task_branches(source, search, parameters)
        tables.append(TableSearch("t", name, branches, by_id))
    if search.history:
        held = in_states(search.history, "h")
        indexed = named(search, parameters, "h") if search.is_named else [[]]
        branches = [[*branch, held] for branch in indexed]
        tables.append(TableSearch("h", f"{name}_history", branches, by_id=not search.is_named))
    if not tables:
        return []
    sql = "\nUNION ALL\n".join(_page_of(table, search, page, parameters, schema) for table in tables)
    rows = await source.fetch(Query(name, parameters.all, sql))
    return sorted(rows, key=lambda row: str(row[0]), reverse=page.newest_first)[: page.limit + 1]


async def _task_branches(
    source: Source, search: Search, parameters: Parameters
) -> tuple[list[list[str]], bool]:
    """Return the branches for the table of tasks, and whether to scan by id.

    A state with few tasks is read by its own index; with many tasks a scan by id fills the page soon enough.
    """
    held = in_states(search.task, "t")
    if search.is_named:
        return [[*branch, held] for branch in named(search, parameters, "t")], False
    if search.where.is_expiring:  # All other conditions of its index are in the filter.
        return [[held, "t.finished_at IS NULL"]], False
    is_indexed_by_id = len(search.task) == 1 and search.task[0] in _INDEXED_BY_ID
    if search.where.chained or search.task == TASK or is_indexed_by_id:
        return [[held]], True
    for state in search.task:
        if await _is_crowded(source, search, state):
            return [[held]], True
    return [by_state_index(search, state, parameters) for state in search.task], False


async def _is_crowded(source: Source, search: Search, state: State) -> bool:
    parameters = Parameters()
    parameters.add(FEW, "bigint")
    branch = " AND ".join(by_state_index(search, state, parameters))
    sql = compose("more_than", source.address.schema, conditions=branch)
    rows = await source.fetch(Query("more_than", parameters.all, sql))
    return bool(rows[0][0])


def _page_of(table: TableSearch, search: Search, page: Page, parameters: Parameters, schema: str) -> str:
    """Return the statement for one table's page.

    OFFSET 0 keeps the planner from avoiding the sort by scanning all ids instead of using the index.
    """
    common = conditions(search, parameters, table.alias)
    order, sign = ("DESC", "<") if page.newest_first else ("ASC", ">")
    if page.cursor is not None:
        common.append(f"{table.alias}.id {sign} {parameters.add(page.cursor, 'uuid')}")
        if search.failure:
            start = f"{parameters.add(search.failure, 'text')}, {parameters.add(page.cursor, 'uuid')}"
            common.append(f"(t.failure, t.id) {sign} ({start})")
    limit = f"LIMIT {parameters.add(page.limit + 1, 'bigint')}"
    branches = [
        compose(table.name, schema, conditions=" AND ".join(dict.fromkeys(branch + common)))
        for branch in table.branches
    ]
    if search.failure is not None:
        return f"({branches[0]} ORDER BY t.failure {order}, t.id {order} {limit})"
    if table.by_id:
        return f"({branches[0]} ORDER BY {table.alias}.id {order} {limit})"
    taken = "\nUNION ALL\n".join(f"({branch} OFFSET 0)" for branch in branches)
    return f'(SELECT * FROM ({taken}) AS branch ORDER BY branch.id COLLATE "C" {order} {limit})'  # noqa: S608 - no values in it
