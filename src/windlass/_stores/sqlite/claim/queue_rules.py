"""What holds for claims and for new tasks, as a transaction finds it: settings and limits. (F2-F5)"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from ...._model.limit import Limit
from ...._model.queue import QueueSettings
from ...._policy.order.lanes import lane_of
from ...._policy.order.limits import Subject, limit_key, limits_in_queue

Place: TypeAlias = tuple[str, str]
"""A lane and a key."""

ONE_LINE: Place = ("", "")

read_settings = msgspec.json.Decoder(QueueSettings).decode
read_limit = msgspec.json.Decoder(Limit).decode


class Places:
    """Where ready tasks belong."""

    def __init__(
        self, settings: Mapping[str, QueueSettings], limits: Sequence[Limit], rearranging: frozenset[str]
    ) -> None:
        self.settings = settings
        self.limits = limits
        self.rearranging = rearranging  # queues of which some tasks are not yet where they belong
        self.are_plain = not limits and not any(one.is_laned for one in settings.values())
        self.capped = frozenset(limit.name for limit in limits if limit.running is not None)

    def is_paused(self, queue: str) -> bool:
        """Whether nothing may be claimed from it."""
        settings = self.settings.get(queue)
        return settings is not None and settings.paused

    def is_one_line(self, queue: str) -> bool:
        """Whether its tasks need no lanes and fall under no limit."""
        if self.are_plain:
            return True
        settings = self.settings.get(queue)
        if settings is not None and settings.is_laned:
            return False
        return self.is_free(queue)

    def is_free(self, queue: str) -> bool:
        """Whether no limit applies to its tasks."""
        return not self.limits or not limits_in_queue(self.limits, queue)

    def of(self, task: Subject, priority: int) -> Place:
        """Where a task belongs."""
        limits = limits_in_queue(self.limits, task.queue)
        lane = lane_of(self.settings.get(task.queue), task.tenant, priority)
        return lane, limit_key(limits, task) if limits else ""


@lru_cache(maxsize=16)
def places(rows: tuple[tuple[str | None, str | None, str | None], ...]) -> Places:
    """From the rows of rules.sql. They seldom change, and every transaction asks."""
    settings = [read_settings(text) for text, _, _ in rows if text is not None]
    limits = [read_limit(text) for _, text, _ in rows if text is not None]
    rearranging = frozenset(queue for _, _, queue in rows if queue is not None)
    return Places({one.name: one for one in settings}, limits, rearranging)
