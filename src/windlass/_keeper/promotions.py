"""The chore of making due tasks ready."""

from .._store.protocol import Store

AT_ONCE = 1_000
_FAR = 3600.0


async def promote_due(store: Store) -> float:
    """Promote everything that is due; answers with the seconds until the next task is."""
    while True:
        promoted = await store.promote(AT_ONCE)
        if promoted.number < AT_ONCE:
            break
    if promoted.next_at is None:
        return _FAR
    return max((promoted.next_at - await store.now()).total_seconds(), 0.0)
