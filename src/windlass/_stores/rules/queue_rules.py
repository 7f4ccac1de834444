"""The rules of queues that apply to claims and new tasks: settings, limits, and unfinished relayouts."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from ..._model.limit import Limit
from ..._model.queue import QueueSettings
from ..._policy.order.lanes import lane_of
from ..._policy.order.limits import Subject, limit_key, limits_in_queue
from ..._policy.order.rank import boost
from ..records import readable, reader

NO_LANE = ("", "")

_read_settings = reader(QueueSettings)
_read_limit = reader(Limit)


class QueueRules:
    """Which queues are FIFO or limited, and the lane and key of each ready task."""

    def __init__(
        self, settings: Mapping[str, QueueSettings], limits: Sequence[Limit], relayouts: frozenset[str]
    ) -> None:
        self.settings = settings
        self.limits = limits
        self.limits_by_name = {limit.name: limit for limit in limits}
        self.relayouts = relayouts  # queues in which some tasks still have an outdated lane or key
        self.all_fifo = not limits and not any(one.is_laned for one in settings.values())
        self.capped = frozenset(limit.name for limit in limits if limit.running is not None)

    def is_fifo(self, queue: str) -> bool:
        """Whether its tasks need no lanes and are under no limit."""
        if self.all_fifo:
            return True
        settings = self.settings.get(queue)
        if settings is not None and settings.is_laned:
            return False
        return self.is_unlimited(queue)

    def is_unlimited(self, queue: str) -> bool:
        """Whether no limit applies to its tasks."""
        return not self.limits or not limits_in_queue(self.limits, queue)

    def is_settled(self, queue: str) -> bool:
        """Whether all its ready tasks have the lane and key that hold now."""
        return queue not in self.relayouts

    def boost(self, queue: str, priority: int) -> int:
        """Return the head start of a priority in a queue, in milliseconds."""
        return boost(priority, self.settings.get(queue)) if priority else 0

    def lane_and_key(self, task: Subject, priority: int) -> tuple[str, str]:
        """Return the lane and the key that a ready task belongs to."""
        limits = limits_in_queue(self.limits, task.queue)
        lane = lane_of(self.settings.get(task.queue), task.tenant, priority)
        return lane, limit_key(limits, task) if limits else ""


@lru_cache(maxsize=16)
def read_rules(rows: tuple[tuple[str | None, str | None, str | None], ...]) -> QueueRules:
    """Decode the rows of rules.sql. Cached: every transaction reads them, and they seldom change."""
    settings = readable(_read_settings, (text for text, _, _ in rows if text is not None))
    limits = readable(_read_limit, (text for _, text, _ in rows if text is not None))
    relayouts = frozenset(queue for _, _, queue in rows if queue is not None)
    return QueueRules({one.name: one for one in settings}, limits, relayouts)
