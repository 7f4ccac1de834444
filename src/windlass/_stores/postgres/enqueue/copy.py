"""Enqueueing in bulk: plain tasks by COPY, in one transaction with the look whether any of them stands."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from ...._model.state import State
from ...._model.task import NewTask, rank_of
from ..connection.pool import Connection
from ..rows import Row, listed
from ..statements import statement
from ..unit_of_work import SOON
from . import plain as enqueueing
from .plain import Terms, since

AT_LEAST = 1000
"""So many tasks are worth the round trips that it takes."""

MAX_SECONDS = 600.0

_COLUMNS = (
    "id", "type", "payload", "root", "queue", "tenant", "priority", "boost", "max_attempts", "timeout",
    "next", "result_into", "secret", "trace", "enqueued_by", "stripe", "lane", "key", "created_at", "run_at",
    "state", "rank",
)  # fmt: skip


class Stands(Exception):
    """One of them ended while it was copied in again: what was done is to be rolled back."""


async def copy(connection: Connection, terms: Terms, batch: Sequence[NewTask]) -> bool:
    """Copy them in; False, and nothing done, if one of them may stand. Raises Stands if one has ended."""
    first, last = min(new.id for new in batch), max(new.id for new in batch)
    sql = statement("look_between", terms.schema).replace("-infinity", since(terms, batch))
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
        place = layout.place(new)
        row: tuple[Any, ...] = (
            new.id,
            new.type,
            new.payload,
            new.root,
            new.queue,
            new.tenant,
            new.priority,
            new.boost,
            new.max_attempts,
            new.timeout,
            new.next,
            new.result_into,
            listed(new.secret),
            new.trace,
            new.enqueued_by,
            place.stripe,
            place.lane,
            place.key,
            now,
            run_at,
            state,
            rank_of(run_at, new.boost),
        )
        yield row
