"""TaskPlaces: which shard recent tasks are on, so that most calls about a task ask one shard only."""

import threading
from collections.abc import Iterable
from itertools import islice

from ...._model.task import TaskId

MAX_PLACES = 100_000


class TaskPlaces:
    """The shards of the tasks that this process enqueued, claimed or found last. A task never moves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[TaskId, str] = {}

    def get(self, task_id: TaskId) -> str | None:
        """Return the shard of a task, if it is known."""
        return self._shards.get(task_id)

    def add(self, task_ids: Iterable[TaskId], shard: str) -> None:
        """Note the shard of tasks; the oldest notes are forgotten."""
        with self._lock:
            self._shards.update(dict.fromkeys(task_ids, shard))
            excess = len(self._shards) - MAX_PLACES
            if excess > 0:
                for task_id in list(islice(self._shards, excess + MAX_PLACES // 10)):
                    del self._shards[task_id]
