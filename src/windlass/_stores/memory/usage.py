"""What of each limit is in use."""

from datetime import datetime

from ..._model.limit import Limit, Usage
from ..._policy.order.limits import Permit, PermitUsage, permits_of, split_key, tokens_at
from .ready import subject_of
from .shelf import Shelf


def usages(shelf: Shelf, now: datetime) -> list[Usage]:
    """The use of every value of a limit that has any."""
    running: dict[str, int] = {}
    permits: dict[str, Permit] = {}
    limits = {limit.name: limit for limit in shelf.limits}
    for held in shelf.held.values():
        for task_id in held:
            for permit in permits_of(limits.values(), subject_of(shelf.tasks[task_id])):
                permits[permit.key] = permit
                running[permit.key] = running.get(permit.key, 0) + 1
    for key in shelf.buckets:
        name, value = split_key(key)
        if name in limits:
            permits[key] = Permit(limits[name], value)
    return [
        Usage(
            name=key,
            limit=permit.limit.name,
            value=permit.value,
            running=running.get(key, 0),
            tokens=_tokens(permit.limit, shelf, key, now),
        )
        for key, permit in permits.items()
    ]


def _tokens(limit: Limit, shelf: Shelf, key: str, now: datetime) -> float | None:
    if limit.rate is None:
        return None
    return tokens_at(limit, PermitUsage(0, *shelf.buckets.get(key, (None, None))), now)
