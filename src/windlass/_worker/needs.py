"""What claimed tasks need and this worker lacks: a handler for their type, or keys of encrypted values."""

import logging
from collections.abc import Sequence
from time import monotonic

from .._handler.task_types import TaskTypes
from .._model.task import Task

logger = logging.getLogger("windlass.worker")

CLAIM_ANY_AFTER = 60.0
"""Seconds after a task of an unknown type until the worker claims tasks of any type again.

Where tasks of other types come first, claims by type cost the store more; without any they are not needed.
"""


class UnknownTypes:
    """The types of claimed tasks that this worker has no handler for."""

    def __init__(self, types: TaskTypes) -> None:
        self._types = types
        self._warned: set[str] = set()
        self._until = 0.0

    def claimable(self) -> tuple[str, ...] | None:
        """Return the types to claim: the known ones for some time after a task of another; else None, any."""
        return self._types.handled if monotonic() < self._until else None

    def note(self, task: Task) -> None:
        """Claim known types only from now on; warn once of each type that is not."""
        self._until = monotonic() + CLAIM_ANY_AFTER
        if task.type in self._warned:
            return
        self._warned.add(task.type)
        last = task.type.rpartition(".")[2]
        similar = [name for name in self._types if name.rpartition(".")[2] == last]
        hint = f" (there is one for {similar[0]!r})" if similar else ""
        logger.warning(
            "this worker has no handler for task type %s%s; leaving its tasks to other workers, task %s "
            "first. If the type was renamed, add %r to aliases= of the new one",
            task.type,
            hint,
            task.id,
            task.type,
        )


class MissingKeys:
    """Warns once of each missing encryption key: tasks that need it come again every few seconds."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn(self, task: Task, keys: Sequence[str]) -> None:
        """Warn of those of these keys that no task needed before."""
        missing = [key for key in keys if key not in self._warned]
        if missing:
            self._warned.update(missing)
            logger.warning(
                "this worker lacks the encryption key %s; handing tasks that need it back for other workers, "
                "task %s first. Add it to WINDLASS_ENCRYPTION_KEYS or the key file (docs/encryption.md)",
                ", ".join(missing),
                task.id,
            )
