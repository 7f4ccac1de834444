"""Limits, and how much of each is in use."""

from collections.abc import Iterable

from msgspec import Struct

from .._model.brief import Brief
from .._model.limit import Limit, Usage
from .fields import build_document

MAX_USAGES = 1_000
"""A limit counted by tenant may have any number of values; its document lists the busiest."""


class UsageDocument(Brief, Struct, kw_only=True):
    """Use of a limit by one value: tasks running, and starts left right now (null: the limit has no rate).

    `share` is how much of the limit that is: at 1 no more may start; above 1 it was lowered meanwhile.
    """

    value: str
    running: int
    tokens: float | None
    share: float


class LimitDocument(Struct, kw_only=True):
    """A limit, and its use by each value, busiest first; at most 1,000 values are listed.

    `declared`: a program declares it in code, and sets it again when its declaration changes.
    """

    name: str
    queue: str | None
    type: str | None
    tenant: str | None
    by: str | None
    running: int | None
    rate: float | None
    burst: int | None
    declared: bool
    in_use: list[UsageDocument]


class LimitList(Struct, kw_only=True):
    """Every limit, by name."""

    items: list[LimitDocument]


def limit_document(limit: Limit, usages: Iterable[Usage], *, declared: bool = False) -> LimitDocument:
    """Build a limit's document."""
    return build_document(
        LimitDocument,
        limit,
        burst=limit.capacity if limit.rate is not None else None,
        declared=declared,
        in_use=[
            build_document(UsageDocument, one, share=round(limit.used(one), 4))
            for one in limit.busiest(usages)[:MAX_USAGES]
        ],
    )
