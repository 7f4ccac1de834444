"""Act on many tasks, a batch at a time, so that no transaction is long."""

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from ..._model.filter import Action, By, Filter, Replay
from ..._model.queue import Retention
from ..._model.state import REPLAYABLE
from ..._model.task import TaskId
from ..._policy.input.replay import interval_between
from ..._store.protocol import Store

BATCH = 500  # tasks that one step changes


async def apply_in_batches(store: Store, action: Action, where: Filter, limit: int | None) -> int:
    """Apply an action to everything that matches, at most `limit` tasks; return how many."""
    await store.open()
    done = 0
    while limit is None or done < limit:
        room = BATCH if limit is None else min(BATCH, limit - done)
        number = len((await store.apply(action, where, room)).ids)
        done += number
        if number < room:
            break
        if isinstance(action, Replay) and action.run_at is not None:
            action = replace(action, run_at=action.due_at(number, action.run_at))
    return done


async def replay_in_batches(
    store: Store,
    action: Replay,
    where: Filter,
    limit: int | None,
    per_second: float | None,
    spread: timedelta | float | str | None,
) -> int:
    """Replay everything that matches, at most `limit` tasks: at once, at a rate, or spread over a duration.

    The number that a duration is divided by is counted first, and may be an estimate.
    """
    await store.open()
    now = await store.now()
    if where.finished_before is None:
        # A task that dies again meanwhile is not replayed twice.
        where = replace(where, finished_before=now + timedelta(microseconds=1))
    if per_second is not None or spread is not None:
        number = 0 if spread is None else await _count_replayable(store, where, limit)
        action = replace(action, run_at=now, interval=interval_between(number, per_second, spread))
    return await apply_in_batches(store, action, where, limit)


async def _count_replayable(store: Store, where: Filter, limit: int | None) -> int:
    states = tuple(state for state in REPLAYABLE if where.states is None or state in where.states)
    number = sum(count.number for count in await store.count(replace(where, states=states), ()))
    return number if limit is None else min(number, limit)


async def apply_to(store: Store, action: Action, ids: Sequence[TaskId]) -> int:
    """Apply an action to these tasks; return to how many."""
    await store.open()
    done = 0
    for start in range(0, len(ids), BATCH):
        batch = tuple(ids[start : start + BATCH])
        done += len((await store.apply(action, Filter(ids=batch), len(batch))).ids)
    return done


async def prune_in_batches(store: Store, default: Retention, by: By) -> int:
    """Delete the ended tasks that are past their retention; return how many. Audited once."""
    await store.open()
    total = number = (await store.prune(default, BATCH, by)).number
    while number:
        number = (await store.prune(default, BATCH)).number
        total += number
    return total
