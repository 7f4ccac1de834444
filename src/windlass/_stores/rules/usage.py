"""How much of each limit is in use."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from ..._model.limit import Limit, Usage
from ..._policy.order.limits import PermitUsage, split_key, tokens_at


def usages(limits: Iterable[Limit], used: Mapping[str, PermitUsage], now: datetime) -> list[Usage]:
    """Report each permit in use, by its key; permits of limits that no longer exist are left out."""
    known = {limit.name: limit for limit in limits}
    found = []
    for key, use in used.items():
        name, value = split_key(key)
        limit = known.get(name)
        if limit is not None and (use.running or use.tokens is not None):
            tokens = None if limit.rate is None else tokens_at(limit, use, now)
            found.append(Usage(name=key, limit=name, value=value, running=use.running, tokens=tokens))
    return found
