"""Act on many tasks, a batch at a time, so that no transaction is long."""

from collections.abc import Sequence

from ..._model.filter import Action, By, Filter
from ..._model.queue import Retention
from ..._model.task import TaskId
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
    return done


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
