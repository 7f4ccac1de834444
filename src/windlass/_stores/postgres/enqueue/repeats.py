"""Telling a first try at an enqueue from a repeat, which takes more care.

A repeat may come just while its task, which stands already, ends and moves to the history: looked for there
before it ended and here afterwards, it is in neither place, and would be enqueued a second time. Only another
look, once it has been inserted, tells. A first try is spared that: its ids were made a moment ago, and have
not been through here.
"""

import time
from collections.abc import Sequence

from ...._model.task import NewTask, TaskId

FRESH_MS = 1000
"""Older ids may have been tried by anybody. Whoever tries again sooner does so by the same handle."""


class Tries:
    """What a handle has tried to enqueue in the last moments."""

    def __init__(self) -> None:
        self._lately: set[TaskId] = set()
        self._before: set[TaskId] = set()
        self._since = 0

    def is_first(self, batch: Sequence[NewTask]) -> bool:
        """Whether none of these can have been tried before; from now on all of them have been."""
        now = time.time_ns() // 1_000_000
        if not 0 <= now - self._since <= FRESH_MS:  # or the clock was set back
            self._before, self._lately, self._since = self._lately, set(), now
        ids = [new.id for new in batch]
        first = (
            _made_at(min(ids)) > now - FRESH_MS
            and self._lately.isdisjoint(ids)
            and self._before.isdisjoint(ids)
        )
        self._lately.update(ids)
        return first


def _made_at(task_id: TaskId) -> int:
    """The Unix milliseconds that an id carries."""
    return int(task_id[:8] + task_id[9:13], 16)
