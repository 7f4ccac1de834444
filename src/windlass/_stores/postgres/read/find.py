"""Reading for people: tasks a page at a time, their attempts, and the records beside them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ...._model.attempt import MAX_RECORDED, Attempt
from ...._model.filter import Filter, Page, Slice
from ...._model.queue import QueueSettings
from ...._model.record import KINDS, Audit, Record, Session, Worker
from ...._model.state import State
from ...._model.task import Task, TaskId, is_task_id
from ..connection.client import Connections
from ..rows import Row, read_attempt, read_task
from ..script import Ask
from ..statements import compose
from .count import count
from .filters import TASK, Sought, Values, conditions, is_text, names, of_state, sought, states

__all__ = ["attempts", "count", "find", "find_ids", "records"]

R = TypeVar("R", bound=Record)
S = TypeVar("S")

FEW = 20_000
"""Up to so many tasks of a state are all looked at for a page; of more than that the page is soon full."""

_IN_ORDER = frozenset({State.DEAD, State.WAITING})
"""States whose index is in the order of a page."""

_settings = msgspec.json.Decoder(QueueSettings)
_worker = msgspec.json.Decoder(Worker)


async def find(connections: Connections, where: Filter, page: Page) -> Slice[Task]:
    """The tasks that match, by id."""
    found = await _page(connections, "find", where, page)
    return _slice([read_task(row) for row in found[: page.limit]], found, lambda task: task.id)


async def find_ids(connections: Connections, where: Filter, page: Page) -> Slice[TaskId]:
    """The ids of the tasks that match, without reading the rest of them."""
    found = await _page(connections, "find_ids", where, page)
    return _slice([row[0] for row in found[: page.limit]], found, str)


async def attempts(connections: Connections, task_id: TaskId) -> list[Attempt]:
    """The lines of a task's attempts, oldest first."""
    if not is_task_id(task_id):
        return []
    rows = await connections.fetch(Ask("attempts", (task_id, MAX_RECORDED)))
    return [read_attempt(task_id, row) for row in reversed(rows)]


async def records(connections: Connections, kind: type[R], page: Page) -> Slice[R]:
    """The records of a kind, by name."""
    name, read, key = _KINDS[kind]
    cursor = page.cursor
    if cursor is not None and not (is_task_id(cursor) if kind is Audit else is_text(cursor)):
        return Slice(items=())
    which = (KINDS[kind],) if kind in KINDS else ()
    found = await connections.fetch(
        Ask(f"{name}_back" if page.newest_first else name, (cursor, page.limit + 1, *which))
    )
    return _slice([read(row) for row in found[: page.limit]], found, key)


# -- pages of tasks ----------------------------------------------------------------------------------


class Side(Struct, frozen=True):
    """One of the two tables, and how to come by its rows: along the ids, or by an arm for each index."""

    alias: str
    name: str
    arms: list[list[str]]
    walks: bool


async def _page(connections: Connections, name: str, where: Filter, page: Page) -> list[Row]:
    """The rows of a page and one more, if there is one. One statement, whatever tables they lie in."""
    of, values, schema = sought(where), Values(), connections.address.schema
    if page.cursor is not None and not is_task_id(page.cursor):
        return []
    sides = []
    if of.task:
        arms, walks = await _task_arms(connections, of, values)
        sides.append(Side("t", name, arms, walks))
    if of.history:
        held = states(of.history, "h")
        arms = [[*arm, held] for arm in names(of, values, "h")] if of.is_named else [[held]]
        sides.append(Side("h", f"{name}_history", arms, walks=not of.is_named))
    if not sides:
        return []
    sql = "\nUNION ALL\n".join(_on_side(side, of, page, values, schema) for side in sides)
    rows = await connections.fetch(Ask(name, values.all, sql))
    return sorted(rows, key=lambda row: str(row[0]), reverse=page.newest_first)[: page.limit + 1]


async def _task_arms(connections: Connections, of: Sought, values: Values) -> tuple[list[list[str]], bool]:
    """The arms in the table of tasks, and whether to walk along the ids all the same.

    A state with few tasks is read off its own index. One with many fills a page soon enough.
    """
    held = states(of.task, "t")
    if of.is_named:
        return [[*arm, held] for arm in names(of, values, "t")], False
    if of.task == TASK or (len(of.task) == 1 and of.task[0] in _IN_ORDER):
        return [[held]], True
    for state in of.task:
        if await _is_crowded(connections, of, state):
            return [[held]], True
    return [of_state(of, state, values) for state in of.task], False


async def _is_crowded(connections: Connections, of: Sought, state: State) -> bool:
    values = Values()
    values.put(FEW, "bigint")
    arm = " AND ".join(of_state(of, state, values))
    sql = compose("any_more", connections.address.schema, conditions=arm)
    rows = await connections.fetch(Ask("any_more", values.all, sql))
    return bool(rows[0][0])


def _on_side(side: Side, of: Sought, page: Page, values: Values, schema: str) -> str:
    """The page of one table.

    What an index leads to is sorted behind an OFFSET 0: the planner would rather avoid sorting, and walk
    along all ids instead.
    """
    every = conditions(of, values, side.alias)
    if page.cursor is not None:
        sign = "<" if page.newest_first else ">"
        every.append(f"{side.alias}.id {sign} {values.put(page.cursor, 'uuid')}")
    order = "DESC" if page.newest_first else "ASC"
    limit = f"LIMIT {values.put(page.limit + 1, 'bigint')}"
    arms = [
        compose(side.name, schema, conditions=" AND ".join(dict.fromkeys(arm + every))) for arm in side.arms
    ]
    if side.walks:
        return f"({arms[0]} ORDER BY {side.alias}.id {order} {limit})"
    taken = "\nUNION ALL\n".join(f"({arm} OFFSET 0)" for arm in arms)
    return f'(SELECT * FROM ({taken}) AS arm ORDER BY arm.id COLLATE "C" {order} {limit})'  # noqa: S608  ours


def _slice(items: list[S], found: Sequence[Row], name: Callable[[S], str]) -> Slice[S]:
    more = len(found) > len(items)
    return Slice(items=tuple(items), cursor=name(items[-1]) if more and items else None)


# -- records -----------------------------------------------------------------------------------------


def _read_queue(row: Row) -> QueueSettings:
    return _settings.decode(row[0])


def _read_session(row: Row) -> Session:
    session, about, started_at, beat_at, expires_at = row
    return Session(
        id=session,
        worker=_worker.decode(about),
        started_at=started_at,
        beat_at=beat_at,
        expires_at=expires_at,
    )


def _read_audit(row: Row) -> Audit:
    line, at, who, why, action, task_id, detail, subject = row
    return Audit(
        id=line, at=at, who=who, why=why, action=action, task_id=task_id, detail=detail, subject=subject
    )


def _body_reader(kind: Any) -> Callable[[Row], Any]:
    decoder = msgspec.json.Decoder(kind)
    return lambda row: decoder.decode(row[0])


_KINDS: dict[object, tuple[str, Callable[[Row], Any], Callable[[Any], str]]] = {
    QueueSettings: ("queues", _read_queue, lambda settings: settings.name),
    Session: ("sessions", _read_session, lambda session: session.id),
    Audit: ("audits", _read_audit, lambda line: line.id),
    **{kind: ("records", _body_reader(kind), lambda record: record.name) for kind in KINDS},
}
