"""The chore of deleting what retention no longer covers. (L3)"""

from .._model.queue import Retention
from .._store import Store

AT_ONCE = 500
_MAX_ROUNDS = 20  # the rest waits for the next time, so that one chore does not hold up the others


async def prune_expired(store: Store, retention: Retention) -> int:
    """Prune, a bounded batch at a time; answers with how many tasks went."""
    total = 0
    for _ in range(_MAX_ROUNDS):
        number = await store.prune(retention, AT_ONCE)
        total += number
        if number < AT_ONCE:
            break
    return total
