"""The chore of deleting what retention no longer covers. (L3)"""

from .._model.queue import Retention
from .._store.protocol import Store

AT_ONCE = 500
_MAX_ROUNDS = 20  # the rest waits a moment, so that one chore does not hold up the others


async def prune_expired(store: Store, retention: Retention) -> bool:
    """Prune, a bounded batch at a time; answers with whether there may be more."""
    for _ in range(_MAX_ROUNDS):
        if await store.prune(retention, AT_ONCE) < AT_ONCE:
            return False
    return True
