"""How much is stored: the bytes of a task, and the steps that are yet to become tasks."""

import re

from ..._model.state import State
from ..._model.task import Task

STEP = r'"id"\s*:\s*"[0-9a-f-]{36}"\s*,\s*"type"\s*:\s*"'
"""How each step begins in `Task.next`, as a regular expression of both Python and Postgres."""

WITHOUT_STEPS = (State.COMPLETED, State.CANCELLED)
"""States whose tasks bring no more steps: each has become a task, or never will."""

_step = re.compile(STEP.encode())


def steps_in(following: bytes | None) -> int:
    """Return how many steps there are in `Task.next`, at any depth."""
    return len(_step.findall(following)) if following else 0


def steps_to_come(task: Task) -> int:
    """Return how many tasks will follow this one in its chain."""
    return 0 if task.state in WITHOUT_STEPS else steps_in(task.next)


def bytes_of(task: Task) -> int:
    """Return the size of a task's payload, result and following steps."""
    return len(task.payload) + len(task.result or b"") + len(task.next or b"")
