"""Insert many plain tasks by COPY, in one transaction with the check that none of them exists."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from ...._model.state import State
from ...._model.task import NewTask, expiry_of, rank_of
from ...pool import Connection
from ..notify import Wakes
from ..queue_layout import Environment
from ..rows import PLAIN_COLUMNS, Row, plain_row
from ..statements import statement
from .plain import ended_between, since

MIN_TASKS = 1000
"""The number of tasks from which on COPY, with its round trips, is faster."""

MAX_SECONDS = 600.0

_COLUMNS = (*PLAIN_COLUMNS, "created_at", "run_at", "expires_at", "state", "rank")


class AlreadyEnded(Exception):
    """A task that was copied had been enqueued before and has ended meanwhile; roll back."""


async def copy(connection: Connection, env: Environment, batch: Sequence[NewTask]) -> bool:
    """Insert the batch; False, with nothing done, if one of its tasks may exist. Raises AlreadyEnded."""
    first, last = min(new.id for new in batch), max(new.id for new in batch)
    sql = statement("any_id_between", env.schema, since=since(env, batch))
    now, exists = await connection.fetchrow(sql, env.clock, first, last)
    if exists:
        return False
    wakes = Wakes(now)
    await connection.copy_records_to_table(
        "task",
        schema_name=env.schema,
        columns=_COLUMNS,
        records=_records(batch, env, now, wakes),
        timeout=MAX_SECONDS,
    )
    ended = ended_between(env, batch)
    if {row[0] for row in await connection.fetch(ended.sql, *ended.parameters)} & {new.id for new in batch}:
        raise AlreadyEnded
    if wakes:
        await connection.fetch(statement("wake", env.schema), wakes.payloads())
    return True


def _records(batch: Sequence[NewTask], env: Environment, now: datetime, wakes: Wakes) -> Iterator[Row]:
    """Yield rows in the order of _COLUMNS, and add the wake-ups that they need."""
    layout, queue = env.layout, None
    ready, scheduled = State.READY.value, State.SCHEDULED.value
    for new in batch:
        run_at = new.run_at or (now if new.delay is None else now + new.delay)
        if run_at > now:
            state = scheduled
            wakes.add(State.SCHEDULED, new.queue, run_at)
        else:
            state = ready
            if new.queue != queue:  # Mostly all tasks of a batch go to one queue.
                queue = new.queue
                wakes.add(State.READY, queue, run_at)
        placement, times = layout.placement(new), (now, run_at, expiry_of(new, run_at, now))
        yield (*plain_row(new, placement), *times, state, rank_of(run_at, placement.boost))
