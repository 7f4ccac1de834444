"""The statement of the hot path for so many queues: an arm reaches into each."""

from msgspec import Struct

from ...._model.task import TaskId

FLOOR: tuple[int, TaskId] = (-(2**63), "00000000-0000-0000-0000-000000000000")
"""Lower than any rank and id: look from the very beginning."""


class Arm(Struct, frozen=True):
    """Where a claim reaches: a queue, one stripe of it, and the rank and id before which it does not look."""

    queue: str
    stripe: int = 0
    floor: tuple[int, TaskId] = FLOOR
