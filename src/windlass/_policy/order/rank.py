"""Priority and ageing as one static number.

With ageing, one priority is worth A of waiting: tasks are ordered by `priority + waited / A`. The present
instant cancels out when two tasks are compared, so `run_at - priority * A` never has to be recomputed.
Strict order is a huge A.
"""

from datetime import timedelta

from ..._model.queue import STRICT_MS, Ordering, QueueSettings

_MILLISECOND = timedelta(milliseconds=1)


def head_start(ordering: Ordering) -> int:
    """Return the head start of one priority in milliseconds, under a queue's ordering."""
    return STRICT_MS if ordering.ageing is None else ordering.ageing // _MILLISECOND


def boost(priority: int, settings: QueueSettings | None) -> int:
    """Return the head start of a priority in milliseconds, under a queue's settings."""
    return priority * (STRICT_MS if settings is None else head_start(settings.ordering)) if priority else 0


def changes_ranks(before: QueueSettings | None, after: QueueSettings | None) -> bool:
    """Whether ready tasks have other ranks after this change of settings."""
    return boost(1, before) != boost(1, after)
