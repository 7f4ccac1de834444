"""Priority and ageing as one static number.

With ageing, one priority is worth A of waiting: tasks are ordered by `priority + waited / A`. The present
instant cancels out when two tasks are compared, so `run_at - priority * A` never has to be recomputed.
Strict order is a huge A.
"""

from datetime import timedelta

from ..._model.queue import STRICT_MS, Ordering
from ...errors import InvalidOption
from ..input.quote import quoted

PRIORITIES = {"high": 10, "medium": 0, "low": -10}
MIN_PRIORITY, MAX_PRIORITY = -100, 100

_MILLISECOND = timedelta(milliseconds=1)


def parse_priority(value: int | str) -> int:
    """Parse a priority: an integer, higher first, or one of the three names."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(
            f"priority must be an integer or one of {', '.join(PRIORITIES)}, got {quoted(value)}"
        )
    if not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidOption(f"priority must be from {MIN_PRIORITY} to {MAX_PRIORITY}, got {quoted(value)}")
    return value


def boost(priority: int, ordering: Ordering) -> int:
    """Return the head start of a priority in milliseconds, under a queue's ordering."""
    step = STRICT_MS if ordering.ageing is None else ordering.ageing // _MILLISECOND
    return priority * step
