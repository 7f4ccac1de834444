"""What of each limit is in use."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from ...._model.filter import Page
from ...._model.limit import Limit, Usage
from ...._policy.order.limits import PermitUsage, split_key, tokens_at
from ..rows import Row, moment, read_permits


def running(rows: Sequence[Row]) -> "Counter[str]":
    """How many tasks run under each permit, from the rows of limited.sql."""
    numbers: Counter[str] = Counter()
    for text, number in rows:
        for key in read_permits(text):
            numbers[key] += number
    return numbers


def usages(
    limits: Sequence[Limit], holding: Mapping[str, int], buckets: Sequence[Row], page: Page, now: datetime
) -> list[Usage]:
    """The use of every value of a limit that has any: a page by name, and one more if there is one."""
    known = {limit.name: limit for limit in limits}
    left = {key: (tokens, moment(at)) for key, tokens, at in buckets}
    keys = sorted({*holding, *left}, reverse=page.newest_first)
    found = [key for key in keys if split_key(key)[0] in known and _is_behind(page, key)]
    return [
        _usage(
            known[split_key(key)[0]], key, PermitUsage(holding.get(key, 0), *left.get(key, (None, None))), now
        )
        for key in found[: page.limit + 1]
    ]


def _is_behind(page: Page, key: str) -> bool:
    if page.cursor is None:
        return True
    return key < page.cursor if page.newest_first else key > page.cursor


def _usage(limit: Limit, key: str, use: PermitUsage, now: datetime) -> Usage:
    return Usage(
        name=key,
        limit=limit.name,
        value=split_key(key)[1],
        running=use.running,
        tokens=None if limit.rate is None else tokens_at(limit, use, now),
    )
