"""Insert plain tasks, those without key, fingerprint or predecessor, in one statement."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import cache

from ...._model.task import Enqueued, NewTask, TaskId
from ..queue_layout import Environment
from ..rows import columns_of, new_row
from ..script import Ask, Script, ask
from ..statements import NEW_COLUMNS, statement

_MAX_SKEW = timedelta(days=1)
"""How far apart the clocks of producers and of the database may be."""

_EVER = "'-infinity'"


def insert_plain(env: Environment, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Insert tasks; those that exist already stay as they are."""
    created = {row[0] for row in (yield insert_statement(env, batch))}
    return enqueued(batch, created)


def insert_again(env: Environment, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Insert tasks that may have been inserted before; repeats.py says why the history is read afterwards."""
    created = {row[0] for row in (yield insert_statement(env, batch))}
    if created:
        ended = yield ended_between(env, batch)
        repeated = sorted(created.intersection(row[0] for row in ended))
        if repeated:
            yield from ask("undo_insert", repeated)
            created.difference_update(repeated)
    return enqueued(batch, created)


def ended_between(env: Environment, batch: Sequence[NewTask]) -> Ask:
    """Return the query for ended tasks with ids from the lowest of these to the highest."""
    sql = statement("ended_between", env.schema, since=since(env, batch))
    return Ask("ended_between", (min(new.id for new in batch), max(new.id for new in batch)), sql)


def insert_statement(env: Environment, batch: Sequence[NewTask]) -> Ask:
    """Return the statement that inserts plain tasks; a single one without arrays, in a third of the time."""
    rows = [new_row(new, env.layout.placement(new)) for new in batch]
    if len(rows) == 1:
        sql = statement("enqueue_one", env.schema, since=since(env, batch))
        return Ask("enqueue_one", (env.clock, *rows[0]), sql)
    return insert_columns(env, batch, columns_of(rows, NEW_COLUMNS))


def insert_columns(env: Environment, batch: Sequence[NewTask], columns: list[list[object]]) -> Ask:
    """Return enqueue.sql for the columns of rows.new_row."""
    sql = statement("enqueue", env.schema, since=since(env, batch))
    return Ask("enqueue", (env.clock, *columns), sql)


def enqueued(batch: Sequence[NewTask], created: set[TaskId]) -> list[Enqueued]:
    """Return the result for each task; of those with the same id only the first is `created`."""
    results = []
    for new in batch:
        results.append(Enqueued(id=new.id, created=new.id in created))
        created.discard(new.id)
    return results


def since(env: Environment, batch: Iterable[NewTask]) -> str:
    """Return the instant, as an SQL literal, from which on the history may hold these ids, which are UUIDv7.

    A literal and not a parameter, so that the planner leaves out the partitions of earlier days.
    """
    if env.clock is not None:  # Ids are not made by a test's clock.
        return _EVER
    first = min(new.id for new in batch)
    return _day_before(int(first[:13].replace("-", ""), 16) // 86_400_000)


@cache
def _day_before(day: int) -> str:
    try:
        return f"'{date(1970, 1, 1) + timedelta(days=day) - _MAX_SKEW} 00:00:00+00'"
    except OverflowError:  # not a UUIDv7
        return _EVER
