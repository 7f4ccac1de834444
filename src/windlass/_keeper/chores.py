"""The keeper's chores that are one loop each: promote due tasks, rescue tasks of expired sessions, prune.

Schedules are fired in `schedules.py`, alerts evaluated in `alerts.py`. Every chore may be done twice or be
left half done without harm.
"""

import logging
import random
from collections.abc import Callable

from .._model.lease import Claimed
from .._model.outcome import Crashed, Outcome, Stopped, name_of
from .._model.queue import Retention
from .._model.task import Error
from .._model.verdict import Settlement
from .._policy.backoff import Delay
from .._policy.input.quote import counted
from .._policy.verdict import decide
from .._store.protocol import Store

logger = logging.getLogger("windlass.keeper")

PROMOTE_BATCH = 1_000
RESCUE_BATCH = 500
PRUNE_BATCH = 500
_MAX_PRUNE_BATCHES = 20  # at a time, so that pruning does not hold up the other chores
_NOTHING_SCHEDULED = 3600.0


async def promote_due(store: Store) -> float:
    """Promote every task that is due; return the seconds until the next one is."""
    while True:
        promoted = await store.promote(PROMOTE_BATCH)
        if promoted.number < PROMOTE_BATCH:
            break
    if promoted.next_at is None:
        return _NOTHING_SCHEDULED
    return max((promoted.next_at - await store.now()).total_seconds(), 0.0)


async def rescue_silent(store: Store, session: str, backoff: Callable[[str], Delay]) -> int:
    """Take over and settle the tasks of workers whose session has expired; return how many there were.

    A rescue is a claim: the lease is taken over, then policy decides and the ordinary settle applies it. If
    the keeper dies in between, its own session expires and the tasks are rescued again.
    """
    total = 0
    while rescued := await store.rescue(session, RESCUE_BATCH):
        await store.settle([_settlement(one, backoff(one.task.type)) for one in rescued])
        total += len(rescued)
    if total:
        logger.warning("rescued %s from workers without a heartbeat", counted(total, "task"))
    return total


def _settlement(claimed: Claimed, backoff: Delay) -> Settlement:
    task = claimed.task
    if task.cancel_requested:
        outcome: Outcome = Stopped()
    else:
        message = (
            f"worker {task.worker} sent no heartbeat during attempt {task.attempt} of {task.max_attempts}"
        )
        outcome = Crashed(error=Error(type="WorkerLost", message=message))
    verdict = decide(task, outcome, backoff, random.random())
    return Settlement(lease=claimed.lease, verdict=verdict, outcome=name_of(outcome))


async def prune_expired(store: Store, retention: Retention) -> bool:
    """Delete ended tasks past their retention, in batches; return whether there may be more."""
    for _ in range(_MAX_PRUNE_BATCHES):
        if await store.prune(retention, PRUNE_BATCH) < PRUNE_BATCH:
            return False
    return True
