"""Insert plain tasks, those without key, fingerprint or predecessor, in one statement."""

import time
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import cache

from ...._model.task import Enqueued, NewTask, TaskId
from ..queue_layout import Environment
from ..rows import NEW_COLUMNS, columns_of, new_row
from ..script import Query, Script, fetch
from ..statements import statement

_MAX_SKEW = timedelta(days=1)
"""How far apart the clocks of producers and of the database may be."""

_EVER = "'-infinity'"

FRESH_MS = 1000
"""Age of an id from which on any process may have enqueued it before; sooner repeats use the same store."""


def insert_plain(env: Environment, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Insert tasks; those that exist already stay as they are."""
    created = {row[0] for row in (yield insert_statement(env, batch))}
    results = enqueued(batch, created)
    yield from await_standbys(env, results)
    return results


def await_standbys(env: Environment, results: Sequence[Enqueued]) -> Script[None]:
    """Before the acknowledgement of a task that exists already, have the commit wait for the standbys.

    A commit whose client gave up or was terminated while it waited for them is visible at once. This
    transaction, which only found it, would write nothing and so not wait; a failover would then lose a task
    that was acknowledged here.
    """
    if env.awaits_standbys and not all(one.created for one in results):
        yield from fetch("await_standbys")


def insert_again(env: Environment, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Insert tasks that may have been inserted before.

    This may run just while such a task ends and moves to the history: not yet there when that is read, no
    longer in the table afterwards, it would be enqueued a second time. Only reading the history once more
    after the insert shows that. A first attempt is spared it, see RecentIds.
    """
    created = {row[0] for row in (yield insert_statement(env, batch))}
    if created:
        ended = yield ended_between(env, batch)
        repeated = sorted(created.intersection(row[0] for row in ended))
        if repeated:
            yield from fetch("undo_insert", repeated)
            created.difference_update(repeated)
    results = enqueued(batch, created)
    yield from await_standbys(env, results)
    return results


def ended_between(env: Environment, batch: Sequence[NewTask]) -> Query:
    """Return the query for ended tasks with ids from the lowest of these to the highest."""
    sql = statement("ended_between", env.schema, since=since(env, batch))
    return Query("ended_between", (min(new.id for new in batch), max(new.id for new in batch)), sql)


def insert_statement(env: Environment, batch: Sequence[NewTask]) -> Query:
    """Return the statement that inserts plain tasks; a single one without arrays, in a third of the time."""
    rows = [new_row(new, env.layout.placement(new)) for new in batch]
    if len(rows) == 1:
        sql = statement("enqueue_one", env.schema, since=since(env, batch))
        return Query("enqueue_one", (env.clock, *rows[0]), sql)
    return insert_columns(env, batch, columns_of(rows, NEW_COLUMNS))


def insert_columns(env: Environment, batch: Sequence[NewTask], columns: list[list[object]]) -> Query:
    """Return enqueue.sql for the columns of rows.new_row."""
    sql = statement("enqueue", env.schema, since=since(env, batch))
    return Query("enqueue", (env.clock, *columns), sql)


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


class RecentIds:
    """The ids that a store has tried to enqueue lately, which tell a first attempt from a repeat.

    The ids of a first attempt were generated a moment ago, and this store has not seen them before.
    """

    def __init__(self) -> None:
        self._current: set[TaskId] = set()
        self._previous: set[TaskId] = set()
        self._since = 0

    def is_first(self, batch: Sequence[NewTask]) -> bool:
        """Whether none of these can have been tried before; from now on all of them have been."""
        now = time.time_ns() // 1_000_000
        if not 0 <= now - self._since <= FRESH_MS:  # or the clock was set back
            self._previous, self._current, self._since = self._current, set(), now
        ids = [new.id for new in batch]
        first = (
            _made_at(min(ids)) > now - FRESH_MS
            and self._current.isdisjoint(ids)
            and self._previous.isdisjoint(ids)
        )
        self._current.update(ids)
        return first


def _made_at(task_id: TaskId) -> int:
    """Return the Unix milliseconds in a UUIDv7."""
    return int(task_id[:8] + task_id[9:13], 16)
