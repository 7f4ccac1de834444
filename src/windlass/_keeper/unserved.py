"""Warn of tasks that no live worker runs: their queue is not served, or their type has no handler."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from .._model.filter import Count, Dimension, Filter
from .._model.record import Session
from .._model.state import State
from .._observe.overview import SOON
from .._policy.input.quote import counted
from .._policy.live_workers import LiveWorkers
from .._store.protocol import Store, all_records

logger = logging.getLogger("windlass.keeper")

_OPEN = Filter(states=(State.READY, State.SCHEDULED))
_BY = (Dimension.QUEUE, Dimension.TYPE, Dimension.STATE)
_AGAIN_AFTER = timedelta(minutes=1)
_MAX_LINES = 20  # of one kind in one turn; one more counts the others

QueuedType = tuple[str, str]
"""A queue, and a type of its tasks."""


class UnservedTasks:
    """Warns of queues and types that are found without a worker twice in a row.

    Twice, as a deployment stops all workers of a queue for a moment. Once of each queue, until it is served
    again. Once a minute of a type that no worker of its queue handles: it was probably renamed, and its tasks
    wait for a day and then die.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_queues: set[str] = set()
        self._warned: set[str] = set()
        self._last_types: set[QueuedType] = set()
        self._warned_at: dict[QueuedType, datetime] = {}

    async def warn(self) -> None:
        """Look at all queues once."""
        counts = await self._store.count(_OPEN, _BY)
        now = await self._store.now()
        sessions = await all_records(self._store, Session)
        live = LiveWorkers(one.worker for one in sessions if one.expires_at > now)
        self._warn_of_queues(counts, live)
        self._warn_of_types(_unhandled(counts, live, now + SOON), now)

    def _warn_of_queues(self, counts: Sequence[Count], live: LiveWorkers) -> None:
        ready: Counter[str] = Counter()
        for count in counts:
            queue, _, state = count.values
            if state == State.READY:
                ready[queue] += count.number
        unserved = {queue for queue in +ready if not live.serves(queue)}
        due = sorted((unserved & self._last_queues) - self._warned)
        for queue in due[:_MAX_LINES]:
            logger.warning(
                "no live worker serves queue %s, which has %s; start one with -q %s",
                queue,
                counted(ready[queue], "ready task"),
                queue,
            )
        if more := due[_MAX_LINES:]:
            logger.warning(
                "no live worker serves %s, which %s %s; `windlass queues list` shows them",
                counted(len(more), "more queue"),
                "has" if len(more) == 1 else "have",
                counted(sum(ready[queue] for queue in more), "ready task"),
            )
        served = sorted(self._warned - unserved)
        for queue in served[:_MAX_LINES]:
            logger.info("queue %s is served again or has no ready tasks", queue)
        if (number := len(served) - _MAX_LINES) > 0:
            verbs = "is served again or has" if number == 1 else "are served again or have"
            logger.info("%s %s no ready tasks", counted(number, "more queue"), verbs)
        self._warned = (self._warned | self._last_queues) & unserved
        self._last_queues = unserved

    def _warn_of_types(self, unhandled: Mapping[QueuedType, int], now: datetime) -> None:
        handled = sorted(set(self._warned_at) - set(unhandled))
        for one in handled:
            del self._warned_at[one]
        for queue, type_name in handled[:_MAX_LINES]:
            logger.info("task type %s of queue %s is handled again or has no tasks", type_name, queue)
        if (number := len(handled) - _MAX_LINES) > 0:
            verbs = "is handled again or has" if number == 1 else "are handled again or have"
            logger.info("%s %s no tasks", counted(number, "more task type"), verbs)
        due = [
            one
            for one in sorted(self._last_types & set(unhandled))
            if one not in self._warned_at or now - self._warned_at[one] >= _AGAIN_AFTER
        ]
        for one in due[:_MAX_LINES]:
            self._warned_at[one] = now
            logger.warning(
                "no live worker of queue %s handles task type %s, which has %s; deploy its handler or, if it "
                "was renamed, add the name to aliases= of the new type",
                *one,
                counted(unhandled[one], "task"),
            )
        self._last_types = set(unhandled)


def _unhandled(counts: Sequence[Count], live: LiveWorkers, until: datetime) -> Mapping[QueuedType, int]:
    """Return the number of tasks that are due by then and that no worker of their queue has a handler for.

    What a worker hands back, as it has no handler, is scheduled: it is due again within seconds.
    """
    numbers: Counter[QueuedType] = Counter()
    for count in counts:
        queue, type_name, state = count.values
        is_due = state == State.READY or (count.oldest_at is not None and count.oldest_at <= until)
        if is_due and live.serves(queue) and not live.handles(queue, type_name):
            numbers[queue, type_name] += count.number
    return +numbers
