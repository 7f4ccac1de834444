"""Tell the first attempt to enqueue a task from a repeat.

A repeat may run just while its task, which exists already, ends and moves to the history: not yet in the
history when that is read, no longer in the table afterwards, it would be enqueued a second time. Only reading
the history once more after the insert shows that. A first attempt is spared it: its ids were generated a
moment ago, and this store has not seen them before.
"""

import time
from collections.abc import Sequence

from ...._model.task import NewTask, TaskId

FRESH_MS = 1000
"""Age of an id from which on any process may have enqueued it before; sooner repeats use the same store."""


class RecentIds:
    """The ids that a store has tried to enqueue lately."""

    def __init__(self) -> None:
        self._current: set[TaskId] = set()
        self._previous: set[TaskId] = set()
        self._since = 0

    def is_first(self, batch: Sequence[NewTask]) -> bool:
        """Whether none of these can have been tried before; from now on all of them have been."""
        now = time.time_ns() // 1_000_000
        if not 0 <= now - self._since <= FRESH_MS:  # or the clock was set back
            self._previous, self._current, self._since = self._current, set(), now
        ids = [new.id for new in batch]
        first = (
            _made_at(min(ids)) > now - FRESH_MS
            and self._current.isdisjoint(ids)
            and self._previous.isdisjoint(ids)
        )
        self._current.update(ids)
        return first


def _made_at(task_id: TaskId) -> int:
    """Return the Unix milliseconds in a UUIDv7."""
    return int(task_id[:8] + task_id[9:13], 16)
