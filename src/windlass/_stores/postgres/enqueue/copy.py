"""Enqueueing in bulk: plain tasks by COPY, in one transaction with the look whether any of them stands."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from ...._model.state import State
from ...._model.task import NewTask, rank_of
from ..connection.pool import Connection
from ..rows import Row, plain_row
from ..statements import PLAIN_COLUMNS, statement
from ..unit_of_work import SOON
from . import plain as enqueueing
from .plain import Terms, since

AT_LEAST = 1000
"""So many tasks are worth the round trips that it takes."""

MAX_SECONDS = 600.0

_COLUMNS = (*PLAIN_COLUMNS, "created_at", "run_at", "state", "rank")


class Stands(Exception):
    """One of them ended while it was copied in again: what was done is to be rolled back."""


async def copy(connection: Connection, terms: Terms, batch: Sequence[NewTask]) -> bool:
    """Copy them in; False, and nothing done, if one of them may stand. Raises Stands if one has ended."""
    first, last = min(new.id for new in batch), max(new.id for new in batch)
    sql = statement("look_between", terms.schema, since=since(terms, batch))
    now, stands = await connection.fetchrow(sql, terms.clock, first, last)
    if stands:
        return False
    news: set[str] = set()
    await connection.copy_records_to_table(
        "task",
        schema_name=terms.schema,
        columns=_COLUMNS,
        records=_records(batch, terms, now, news),
        timeout=MAX_SECONDS,
    )
    ended = enqueueing.ended_between(terms, batch)
    if {row[0] for row in await connection.fetch(ended.sql, *ended.parameters)} & {new.id for new in batch}:
        raise Stands
    if news:
        await connection.fetch(statement("wake", terms.schema), sorted(news))
    return True


def _records(batch: Sequence[NewTask], terms: Terms, now: datetime, news: set[str]) -> Iterator[Row]:
    """Rows in the order of the columns, noting on the way who is to hear of them."""
    soon, layout = now + SOON, terms.layout
    for new in batch:
        run_at = new.run_at or (now if new.delay is None else now + new.delay)
        if run_at <= now:
            state, queue = State.READY.value, new.queue
            news.add(queue)
        else:
            state = State.SCHEDULED.value
            if run_at < soon:
                news.add("")
        yield (*plain_row(new, layout.place(new)), now, run_at, state, rank_of(run_at, new.boost))
