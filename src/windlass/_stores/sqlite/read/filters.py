"""From a filter to a condition. Values are parameters; only our own words and the states' become text."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...._model.filter import Dimension, Filter, Page
from ...._model.state import State
from ..rows import instant
from ..statements import listed, statement

_OWN_INDEX = {(State.RUNNING,): "windlass_task_running", (State.DEAD,): "windlass_task_dead"}
"""States that are few, or kept in the order of a page. Named, for the planner would rather avoid sorting."""

_STATE_INDEX = {
    State.READY: "windlass_task_ready",
    State.SCHEDULED: "windlass_task_scheduled",
    State.RUNNING: "windlass_task_running",
    State.DEAD: "windlass_task_dead",
}
_WAITS = "task.id IN (SELECT successor FROM windlass_dependency)"  # has no index: few tasks ever wait


class Query(Struct, frozen=True):
    """A statement and its parameters."""

    sql: str
    parameters: dict[str, Any]


def finding(where: Filter, page: Page, edge: str | None = None) -> Query:
    """The tasks that match, a page by id, none of them beyond the edge."""
    return _page("find", where, page, edge)


def naming(where: Filter, page: Page, edge: str | None = None) -> Query:
    """The ids of the tasks that match, a page of them, none beyond the edge."""
    return _page("find_ids", where, page, edge)


def _page(name: str, where: Filter, page: Page, edge: str | None) -> Query:
    conditions, parameters = _conditions(where)
    _within(conditions, (page.cursor, edge), newest_first=page.newest_first)
    sql = _with(statement(name), conditions, where)
    if page.newest_first:
        sql = sql.replace("ORDER BY task.id", "ORDER BY task.id DESC")
    return Query(sql, {**parameters, "cursor": page.cursor, "edge": edge, "limit": page.limit})


def counting(where: Filter, by: Sequence[Dimension], window: tuple[str | None, str | None]) -> Query:
    """How many match, by these dimensions, within a window of ids: the first not included, the last is."""
    conditions, parameters = _conditions(where)
    _within(conditions, window, newest_first=False)
    columns = ", ".join(f"task.{dimension.value}" for dimension in by)
    sql = statement("count").replace(", 1\n", f", {columns}\n" if by else "\n")
    sql = sql.replace("GROUP BY 3", f"GROUP BY {columns}" if by else "")
    return Query(_with(sql, conditions, where), {**parameters, "cursor": window[0], "edge": window[1]})


def counting_states(where: Filter, by: Sequence[Dimension]) -> Query:
    """The same in one step, each state by what leads to its tasks."""
    queries = [counting(replace(where, states=(state,)), by, (None, None)) for state in _each_state(where)]
    arms = [_by_state(query.sql, state) for query, state in zip(queries, _each_state(where), strict=True)]
    return Query("\nUNION ALL\n".join(arms), queries[0].parameters)


def sizing_states(where: Filter, limit: int) -> Iterator[Query]:
    """How many tasks there are of each state, whatever else the filter asks for, up to a limit."""
    for state in _each_state(where):
        if state is State.WAITING:
            yield Query(statement("few_dependencies"), {"limit": limit})
        else:
            sql = statement("few").replace("TRUE", f"task.state = '{state.value}'")
            yield Query(_by_state(sql, state), {"limit": limit})


def is_by_state(where: Filter) -> bool:
    """Whether the filter names states, and each has something that leads to its tasks."""
    led = {*_STATE_INDEX, State.WAITING}
    return not is_selective(where) and bool(where.states) and led.issuperset(where.states or ())


def _each_state(where: Filter) -> list[State]:
    return [*dict.fromkeys(map(State, where.states or ()))]


def _by_state(sql: str, state: State) -> str:
    if state is State.WAITING:
        return sql.replace("WHERE ", f"WHERE {_WAITS} AND ")
    return sql if "INDEXED BY" in sql else sql.replace("AS task", f"AS task INDEXED BY {_STATE_INDEX[state]}")


def _within(conditions: list[str], window: tuple[str | None, str | None], *, newest_first: bool) -> None:
    cursor, edge = window
    if cursor is not None:
        conditions.append("task.id < :cursor" if newest_first else "task.id > :cursor")
    if edge is not None:
        conditions.append("task.id >= :edge" if newest_first else "task.id <= :edge")


def is_selective(where: Filter) -> bool:
    """Whether an index finds the tasks that match, so that no window is needed to keep the read short."""
    return is_named(where) or where.states in _OWN_INDEX


def is_named(where: Filter) -> bool:
    """Whether the filter says which tasks it means, rather than what they are like: never many rows."""
    return where.ids is not None or where.root is not None or where.idempotency_key is not None


def _with(sql: str, conditions: list[str], where: Filter) -> str:
    if where.states in _OWN_INDEX and not is_named(where):
        sql = sql.replace("AS task", f"AS task INDEXED BY {_OWN_INDEX[where.states]}")
    return sql.replace("WHERE TRUE", "WHERE " + " AND ".join(conditions)) if conditions else sql


def _conditions(where: Filter) -> tuple[list[str], dict[str, Any]]:
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    if where.states is not None:
        # As text, so that the planner sees which partial index holds them.
        named = ", ".join(f"'{State(state).value}'" for state in where.states)
        conditions.append(f"task.state = {named}" if len(where.states) == 1 else f"task.state IN ({named})")
    for name, condition in _LISTS.items():
        values = getattr(where, name)
        if values is not None:
            conditions.append(condition)
            parameters[name] = listed(values)
    if where.root is not None:
        conditions.append(
            "((task.id = :root AND task.root = :root) OR (task.root = :root AND task.root <> task.id))"
        )
        parameters["root"] = where.root
    if where.idempotency_key is not None:
        conditions.append("task.idempotency_key = :idempotency_key")
        parameters["idempotency_key"] = where.idempotency_key
    if where.error is not None:
        conditions.append("windlass_mentions(task.error_type, task.error_message, :error)")
        parameters["error"] = where.error.lower()
    for name, condition in _BOUNDS.items():
        at = getattr(where, name)
        if at is not None:
            conditions.append(condition)
            parameters[name] = instant(at)
    return conditions, parameters


_LISTS = {
    "ids": "task.id IN (SELECT value FROM json_each(:ids))",
    "types": "task.type IN (SELECT value FROM json_each(:types))",
    "queues": "task.queue IN (SELECT value FROM json_each(:queues))",
    "tenants": "task.tenant IN (SELECT value FROM json_each(:tenants))",
}
_BOUNDS = {
    "created_after": "task.created_at >= :created_after",
    "created_before": "task.created_at < :created_before",
    "finished_after": "task.finished_at >= :finished_after",
    "finished_before": "task.finished_at < :finished_before",
}


def mentions(error_type: str | None, message: str | None, text: str) -> bool:
    """Whether an error's type or message has this lower-case text in it. LIKE folds ASCII only."""
    return error_type is not None and (text in error_type.lower() or text in (message or "").lower())
