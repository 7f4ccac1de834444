"""Inserts of plain tasks, in one statement: those without key, fingerprint or predecessor."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from functools import cache

from msgspec import Struct, field

from ...._model.task import Enqueued, NewTask, TaskId
from ..queue_layout import Layout
from ..rows import columns_of, new_row
from ..script import Ask, Script, ask
from ..statements import NEW_COLUMNS, statement

_SKEW = timedelta(days=1)
"""How far apart the clocks of producers and of the database may be."""

_EVER = "'-infinity'"


class Terms(Struct, frozen=True, kw_only=True):
    """What enqueueing goes by: where, by which clock (None: the database's), and how queues are laid out."""

    schema: str
    clock: datetime | None = None
    layout: Layout = field(default_factory=Layout)


def insert_plain(terms: Terms, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Insert tasks that need no look-up; what stands already stays."""
    created = {row[0] for row in (yield plain_insertion(terms, batch))}
    return answers_to(batch, created)


def insert_again(terms: Terms, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """The same for tasks that may have been tried before; see tries.py for what the second look is for."""
    created = {row[0] for row in (yield plain_insertion(terms, batch))}
    if created:
        ended = yield ended_between(terms, batch)
        those = sorted(created.intersection(row[0] for row in ended))
        if those:
            yield from ask("take_back", those)
            created.difference_update(those)
    return answers_to(batch, created)


def ended_between(terms: Terms, batch: Sequence[NewTask]) -> Ask:
    """Whatever has ended with an id from the first of these to the last."""
    sql = statement("ended_between", terms.schema, since=since(terms, batch))
    return Ask("ended_between", (min(new.id for new in batch), max(new.id for new in batch)), sql)


def plain_insertion(terms: Terms, batch: Sequence[NewTask]) -> Ask:
    """One statement for plain tasks: without arrays for a single one, which takes half the time."""
    rows = [new_row(new, terms.layout.place(new)) for new in batch]
    if len(rows) == 1:
        sql = statement("enqueue_one", terms.schema, since=since(terms, batch))
        return Ask("enqueue_one", (terms.clock, *rows[0]), sql)
    return insertion(terms, batch, columns_of(rows, NEW_COLUMNS))


def insertion(terms: Terms, batch: Sequence[NewTask], columns: list[list[object]]) -> Ask:
    """enqueue.sql for these rows."""
    sql = statement("enqueue", terms.schema, since=since(terms, batch))
    return Ask("enqueue", (terms.clock, *columns), sql)


def answers_to(batch: Sequence[NewTask], created: set[TaskId]) -> list[Enqueued]:
    """What to say to each: created, the first time that its id occurs."""
    answers = []
    for new in batch:
        answers.append(Enqueued(id=new.id, created=new.id in created))
        created.discard(new.id)
    return answers


def since(terms: Terms, batch: Iterable[NewTask]) -> str:
    """Return the instant, as an SQL literal, from which on the history may hold these ids, which are UUIDv7.

    A literal and not a parameter, so that the planner leaves out the partitions of earlier days.
    """
    if terms.clock is not None:  # A test's clock knows nothing of the ids'.
        return _EVER
    first = min(new.id for new in batch)
    return _day_before(int(first[:13].replace("-", ""), 16) // 86_400_000)


@cache
def _day_before(day: int) -> str:
    try:
        return f"'{date(1970, 1, 1) + timedelta(days=day) - _SKEW} 00:00:00+00'"
    except OverflowError:  # an id that is no UUIDv7
        return _EVER
