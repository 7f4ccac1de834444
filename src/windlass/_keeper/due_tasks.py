"""The chores that tasks wait for: make due tasks ready, cancel those that have expired."""

from datetime import timedelta

from .._model.filter import Expire, Filter
from .._store.protocol import Store

PROMOTE_BATCH = 1_000
EXPIRE_BATCH = 500
_LOOK_EVERY = 1.0  # seconds, however far away the next task is: wakes may be lost


async def promote_due(store: Store) -> float:
    """Promote every task that is due; return the seconds until the next one is, or until the next look."""
    while True:
        promoted = await store.promote(PROMOTE_BATCH)
        if promoted.number < PROMOTE_BATCH:
            break
    if promoted.next_at is None:
        return _LOOK_EVERY
    return min(max((promoted.next_at - await store.now()).total_seconds(), 0.0), _LOOK_EVERY)


async def cancel_expired(store: Store) -> None:
    """Cancel every task that has not started by its expiry."""
    until = await store.now() + timedelta(microseconds=1)
    where = Filter(expires_before=until)
    while len((await store.apply(Expire(), where, EXPIRE_BATCH)).ids) == EXPIRE_BATCH:
        continue
