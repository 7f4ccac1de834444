"""What operators do to tasks."""

from collections.abc import Iterator

from msgspec.structs import replace

from ..._model.filter import Action, Filter, Page
from ..._model.task import Task, TaskId
from ..rules.actions import applicable
from ..rules.actions import apply as apply_rule
from .read.filters import find_query
from .rows import read_tasks
from .rule_player import run
from .transaction import Transaction

_CHUNK = 500


def apply(tx: Transaction, action: Action, where: Filter, limit: int) -> list[TaskId]:
    """Apply an action to the tasks that match and permit it, oldest first.

    The writer waits for the search, so an index must serve the filter.
    """
    where = applicable(action, where)
    ids = (task.id for task in _matching(tx, where))
    return run(tx, apply_rule(tx, action, ids, where.states or (), limit))


def _matching(tx: Transaction, where: Filter) -> Iterator[Task]:
    """Find the matching tasks, oldest first, a chunk at a time; a long list of ids is split into chunks."""
    if where.ids is not None:
        ids = sorted(set(where.ids))
        for start in range(0, len(ids), _CHUNK):
            yield from _chunk(tx, replace(where, ids=tuple(ids[start : start + _CHUNK])), None)
        return
    found = _chunk(tx, where, None)
    yield from found
    while len(found) == _CHUNK:
        found = _chunk(tx, where, found[-1].id)
        yield from found


def _chunk(tx: Transaction, where: Filter, cursor: str | None) -> list[Task]:
    query = find_query(where, Page(limit=_CHUNK, cursor=cursor))
    return read_tasks(tx.select(query.sql, query.parameters))
