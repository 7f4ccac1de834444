"""How much of each limit is in use, and the tokens that its buckets have left."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from ..._model.limit import Limit, Usage
from ..._policy.order.limits import PermitUsage, split_key, tokens_at, usage_of


def usages(limits: Iterable[Limit], used: Mapping[str, PermitUsage], now: datetime) -> list[Usage]:
    """Report each permit in use, by its key; permits of limits that no longer exist are left out."""
    known = {limit.name: limit for limit in limits}
    found = []
    for key, use in used.items():
        limit = known.get(split_key(key)[0])
        if limit is not None and (use.running or use.tokens is not None):
            found.append(usage_of(key, limit, use, now))
    return found


def refilled(
    limit: Limit, buckets: Iterable[tuple[str, float, datetime]], now: datetime
) -> list[tuple[str, float]]:
    """Compute the tokens of a limit's buckets (key, tokens, at) up to now, as the limit changes."""
    return [(key, tokens_at(limit, PermitUsage(0, tokens, at), now)) for key, tokens, at in buckets]
