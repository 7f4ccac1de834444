"""What of each limit is in use."""

from datetime import datetime

from ..._model.limit import Limit, Usage
from ..._policy.order.limits import PermitUsage, permits_of, split_key, usage_of
from .ready import subject_of
from .shelf import Shelf


def usages(shelf: Shelf, now: datetime) -> list[Usage]:
    """The use of every value of a limit that has any."""
    running: dict[str, int] = {}
    used: dict[str, Limit] = {}
    limits = {limit.name: limit for limit in shelf.limits}
    for held in shelf.held.values():
        for task_id in held:
            for permit in permits_of(limits.values(), subject_of(shelf.tasks[task_id])):
                used[permit.key] = permit.limit
                running[permit.key] = running.get(permit.key, 0) + 1
    for key in shelf.buckets:
        name, _ = split_key(key)
        if name in limits:
            used[key] = limits[name]
    return [
        usage_of(key, limit, PermitUsage(running.get(key, 0), *shelf.buckets.get(key, (None, None))), now)
        for key, limit in used.items()
    ]
