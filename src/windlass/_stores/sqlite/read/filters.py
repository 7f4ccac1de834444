"""Filters to SQL conditions. Values become parameters; only column names and states become text."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...._model.filter import Dimension, Filter, Page
from ...._model.state import State
from ...rules.sizes import WITHOUT_STEPS
from ..rows import filled, instant, listed, statement

_OWN_INDEX = {(State.RUNNING,): "windlass_task_running", (State.DEAD,): "windlass_task_dead"}
"""States whose tasks are few or indexed in page order. Named: the planner would rather avoid a sort."""

_STATE_INDEX = {
    State.READY: "windlass_task_ready",
    State.SCHEDULED: "windlass_task_scheduled",
    State.RUNNING: "windlass_task_running",
    State.DEAD: "windlass_task_dead",
}
_FAILURE_INDEX = "windlass_task_failure"
_CHAINED = "(task.next IS NOT NULL OR task.root <> task.id)"  # as the index has it
_UNSIZED = ", 0, 0"
_SIZED = (
    ", coalesce(sum(CASE WHEN task.next IS NOT NULL AND NOT ({spent}) THEN windlass_steps(task.next) END), 0)"
    ", coalesce(sum(length(task.payload) + ifnull(length(task.result), 0) + ifnull(length(task.next), 0)), 0)"
).format(spent=" OR ".join(f"task.state = '{state.value}'" for state in WITHOUT_STEPS))
_WAITS = "task.id IN (SELECT successor FROM windlass_dependency)"  # no index: few tasks ever wait


class Query(Struct, frozen=True):
    """A statement and its parameters."""

    sql: str
    parameters: dict[str, Any]


def page_query(name: str, where: Filter, page: Page, edge: str | None = None) -> Query:
    """Return the query `find` or `find_ids` for those that match: a page by id, including `edge` at most."""
    conditions, parameters = _conditions(where)
    conditions += _window((page.cursor, edge), newest_first=page.newest_first)
    slots = {"direction": "DESC" if page.newest_first else ""}
    sql = filled(name, {**slots, "index": _index(where), "conditions": _all_of(conditions)})
    return Query(sql, {**parameters, "cursor": page.cursor, "edge": edge, "limit": page.limit})


def count_states_query(where: Filter, by: Sequence[Dimension], *, sized: bool) -> Query:
    """Return the query for the number of matches in one statement, each state through its own index."""
    parts = [
        count_query(
            replace(where, states=(state,)), by, (None, None), sized=sized, access=_access_by_state(state)
        )
        for state in _each_state(where)
    ]
    return Query("\nUNION ALL\n".join(part.sql for part in parts), parts[0].parameters)


def count_query(
    where: Filter,
    by: Sequence[Dimension],
    window: tuple[str | None, str | None],
    *,
    sized: bool,
    access: tuple[str, Sequence[str]] | None = None,
) -> Query:
    """Return the query for the number of matches by dimensions, within a window of ids (first, last].

    `sized`: also count steps and bytes, which reads whole rows. `access` is the index and the further
    conditions by which they are reached.
    """
    index, further = access or (_counted_by(where) if not sized else _index(where), ())
    conditions, parameters = _conditions(where)
    conditions += _window(window, newest_first=False)
    columns = ", ".join(f"task.{dimension.value}" for dimension in by)
    slots = {"dimensions": f", {columns}" if by else "", "group_by": f"GROUP BY {columns}" if by else ""}
    slots["sizes"] = _SIZED if sized else _UNSIZED
    sql = filled("count", {**slots, "index": index, "conditions": _all_of([*further, *conditions])})
    return Query(sql, {**parameters, "cursor": window[0], "edge": window[1]})


def state_size_queries(where: Filter, limit: int) -> Iterator[Query]:
    """Yield queries that count the tasks of each state up to a limit, whatever else the filter says."""
    for state in _each_state(where):
        if state is State.WAITING:
            yield Query(statement("few_dependencies"), {"limit": limit})
        else:
            slots = {"index": _indexed_by(_STATE_INDEX[state]), "conditions": f"task.state = '{state.value}'"}
            yield Query(filled("few", slots), {"limit": limit})


def is_by_state(where: Filter) -> bool:
    """Whether the filter names only states whose tasks can be reached without a scan."""
    reachable = {*_STATE_INDEX, State.WAITING}
    return not is_selective(where) and bool(where.states) and reachable.issuperset(where.states or ())


def _each_state(where: Filter) -> list[State]:
    return [*dict.fromkeys(map(State, where.states or ()))]


def _access_by_state(state: State) -> tuple[str, Sequence[str]]:
    """Return the index and the further conditions by which the tasks of a state are reached."""
    return ("", (_WAITS,)) if state is State.WAITING else (_indexed_by(_STATE_INDEX[state]), ())


def _index(where: Filter) -> str:
    if is_named(where) or where.states == ():  # nothing matches, and SQLite refuses an index for that
        return ""
    if where.is_expiring:
        return _indexed_by("windlass_task_expiring")
    if where.chained:
        return _indexed_by("windlass_task_chained")
    if where.states == (State.DEAD,) and where.failures is not None:
        return _indexed_by(_FAILURE_INDEX)
    return _indexed_by(_OWN_INDEX[where.states]) if where.states in _OWN_INDEX else ""


def _counted_by(where: Filter) -> str:
    """Return the index to count by: that for dead letters has all that is usually asked about many."""
    uncovered = (where.failures, where.error, where.finished_after, where.finished_before)
    is_covered = not where.chained and all(one is None for one in uncovered)
    if where.states != (State.DEAD,) or is_named(where) or not is_covered:
        return _index(where)
    return _indexed_by("windlass_task_dead_count")


def _indexed_by(index: str) -> str:
    return f"INDEXED BY {index}"


def _all_of(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions) or "TRUE"


def _window(window: tuple[str | None, str | None], *, newest_first: bool) -> list[str]:
    cursor, edge = window
    conditions: list[str] = []
    if cursor is not None:
        conditions.append("task.id < :cursor" if newest_first else "task.id > :cursor")
    if edge is not None:
        conditions.append("task.id >= :edge" if newest_first else "task.id <= :edge")
    return conditions


def is_selective(where: Filter) -> bool:
    """Whether an index finds the tasks that match, so that the read is short without a window."""
    return is_named(where) or where.states in _OWN_INDEX or where.is_expiring or where.chained


def is_named(where: Filter) -> bool:
    """Whether the filter names tasks, by id, root or key, rather than describing them: never many rows."""
    return where.ids is not None or where.root is not None or where.idempotency_key is not None


def _conditions(where: Filter) -> tuple[list[str], dict[str, Any]]:
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    if where.states is not None:
        # As text, so that the planner can match the partial indexes.
        named = ", ".join(f"'{State(state).value}'" for state in where.states)
        conditions.append(f"task.state = {named}" if len(where.states) == 1 else f"task.state IN ({named})")
    if where.is_expiring:
        conditions.append("task.finished_at IS NULL")  # as the index has it
    if where.chained:
        conditions.append(_CHAINED)
    if where.failures is not None:
        conditions.append(_failed(where.failures))
        parameters["failures"] = where.failures[0] if len(where.failures) == 1 else listed(where.failures)
    for name, (condition, encode) in _FIELDS.items():
        value = getattr(where, name)
        if value is not None:
            conditions.append(condition)
            parameters[name] = encode(value)
    return conditions, parameters


def _failed(failures: Sequence[str]) -> str:
    """Return the condition on the failure: of one alone by `=`, as its index is then in page order."""
    if failures == ("",):
        return "task.failure IS NULL"
    if len(failures) == 1:
        return "task.failure = :failures"
    one = "task.failure IN (SELECT value FROM json_each(:failures))"
    return f"(task.failure IS NULL OR {one})" if "" in failures else one


_FIELDS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "ids": ("task.id IN (SELECT value FROM json_each(:ids))", listed),
    "types": ("task.type IN (SELECT value FROM json_each(:types))", listed),
    "queues": ("task.queue IN (SELECT value FROM json_each(:queues))", listed),
    "tenants": ("task.tenant IN (SELECT value FROM json_each(:tenants))", listed),
    "root": (
        "((task.id = :root AND task.root = :root) OR (task.root = :root AND task.root <> task.id))",
        str,
    ),
    "idempotency_key": ("task.idempotency_key = :idempotency_key", str),
    "error": ("windlass_mentions(task.error_type, task.error_message, :error)", str.lower),
    "created_after": ("task.created_at >= :created_after", instant),
    "created_before": ("task.created_at < :created_before", instant),
    "finished_after": ("task.finished_at >= :finished_after", instant),
    "finished_before": ("task.finished_at < :finished_before", instant),
    "expires_before": ("task.expires_at < :expires_before AND task.attempt = 0", instant),
}
"""The condition of each field, and how its value becomes a parameter."""


def mentions(error_type: str | None, message: str | None, text: str) -> bool:
    """Whether an error's type or message contains this lower-case text. LIKE folds only ASCII."""
    return error_type is not None and (text in error_type.lower() or text in (message or "").lower())
