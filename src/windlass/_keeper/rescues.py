"""The chore of taking over the tasks of workers that fell silent. (D3, D12)

A rescue is a claim: the lease is taken over, then the ordinary policy decides and the ordinary settle
applies it. A rescuer that dies on the way is rescued in its turn.
"""

import logging
import random
from collections.abc import Callable

from .._model.lease import Claimed
from .._model.outcome import Crashed, Outcome, Stopped, name_of
from .._model.task import Error
from .._model.verdict import Settlement
from .._policy.backoff import Delay
from .._policy.verdict import decide
from .._store.protocol import Store

logger = logging.getLogger("windlass.keeper")

AT_ONCE = 500


async def rescue_silent(store: Store, session: str, backoff: Callable[[str], Delay]) -> int:
    """Take over and settle everything whose worker fell silent; answers with how many tasks that was."""
    total = 0
    while rescued := await store.rescue(session, AT_ONCE):
        await store.settle([_settlement(one, backoff(one.task.type)) for one in rescued])
        total += len(rescued)
    if total:
        logger.warning("rescued %d tasks of workers that fell silent", total)
    return total


def _settlement(claimed: Claimed, backoff: Delay) -> Settlement:
    task = claimed.task
    if task.cancel_requested:
        outcome: Outcome = Stopped()
    else:
        told = f"worker {task.worker} fell silent in attempt {task.attempt} of {task.max_attempts}"
        outcome = Crashed(error=Error(type="WorkerLost", message=told))
    verdict = decide(task, outcome, backoff, random.random())
    return Settlement(lease=claimed.lease, verdict=verdict, outcome=name_of(outcome))
