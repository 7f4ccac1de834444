"""Who goes first: priority and ageing as one static number. (F1, F2, P4)

Ageing "one level per A of waiting" orders by `priority + waited / A`. Comparing two tasks cancels the
present instant, so `run_at - priority * A` never has to be recomputed. Strict order is a huge A.
"""

from datetime import timedelta

from ..._model.queue import STRICT_MS, Ordering
from ...errors import InvalidOption
from ..input.quoting import quoted

PRIORITIES = {"high": 10, "medium": 0, "low": -10}
MIN_PRIORITY, MAX_PRIORITY = -100, 100

_MILLISECOND = timedelta(milliseconds=1)


def parse_priority(value: int | str) -> int:
    """An integer priority, higher first, from itself or one of the three names."""
    if isinstance(value, str):
        if value not in PRIORITIES:
            raise InvalidOption(
                f"the priority {quoted(value)} is not one of {', '.join(PRIORITIES)} or an integer"
            )
        return PRIORITIES[value]
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(
            f"a priority is an integer or one of {', '.join(PRIORITIES)}, not {quoted(value)}"
        )
    if not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidOption(f"a priority is between {MIN_PRIORITY} and {MAX_PRIORITY}, not {quoted(value)}")
    return value


def boost(priority: int, ordering: Ordering) -> int:
    """The head start, in milliseconds, that a priority buys in a queue ordered so."""
    step = STRICT_MS if ordering.ageing is None else ordering.ageing // _MILLISECOND
    return priority * step
