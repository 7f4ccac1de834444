"""Warn of queues whose ready tasks no live worker serves."""

import logging

from .._model.filter import Dimension, Filter
from .._model.record import Session
from .._model.state import State
from .._policy.input.quote import counted
from .._store.protocol import Store, all_records

logger = logging.getLogger("windlass.keeper")

_READY = Filter(states=(State.READY,))


class UnservedQueues:
    """Warns once of each queue that is found unserved twice in a row, and says when it is served again.

    Twice, as a deployment stops all workers of a queue for a moment.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: set[str] = set()
        self._warned: set[str] = set()

    async def warn(self) -> None:
        """Look at all queues once."""
        ready = {
            count.values[0]: count.number for count in await self._store.count(_READY, (Dimension.QUEUE,))
        }
        now = await self._store.now()
        sessions = [one for one in await all_records(self._store, Session) if one.expires_at > now]
        served = {queue for session in sessions for queue in session.worker.queues}
        everywhere = any(session.worker.all_queues for session in sessions)
        unserved = set() if everywhere else {queue for queue in ready if ready[queue]} - served
        for queue in sorted((unserved & self._last) - self._warned):
            logger.warning(
                "no live worker serves queue %s, which has %s; start one with -q %s",
                queue,
                counted(ready[queue], "ready task"),
                queue,
            )
        for queue in sorted(self._warned - unserved):
            logger.info("queue %s is served again or has no ready tasks", queue)
        self._warned = (self._warned | self._last) & unserved
        self._last = unserved
