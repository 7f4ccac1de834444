"""Limits in words, and how much of them is in use."""

from msgspec import Struct

from ..._documents.limits import LimitDocument, UsageDocument
from ..._policy.input.quote import counted


class LimitRow(Struct, frozen=True, kw_only=True):
    """A limit in words. `share` is that of the value that uses most of it."""

    name: str
    applies_to: str
    allows: str
    share: float
    uses: list[UsageDocument]
    declared: bool


def limit_row(limit: LimitDocument) -> LimitRow:
    """Return a limit in words."""
    return LimitRow(
        name=limit.name,
        applies_to=_applies_to(limit),
        allows=_allows(limit),
        share=limit.in_use[0].share if limit.in_use else 0.0,
        uses=limit.in_use,
        declared=limit.declared,
    )


def _applies_to(limit: LimitDocument) -> str:
    named = (("queue", limit.queue), ("type", limit.type), ("tenant", limit.tenant))
    return ", ".join(f"{kind} {name}" for kind, name in named if name is not None) or "all tasks"


def _allows(limit: LimitDocument) -> str:
    parts = []
    if limit.running is not None:
        parts.append(f"{limit.running:,} running")
    if limit.rate is not None:
        parts.append(f"{_rate(limit.rate)}, {counted(limit.burst or 1, 'start')} at once")
    each = "" if limit.by is None else f", for each {limit.by}"
    return " and ".join(parts) + each


def _rate(rate: float) -> str:
    """Return a rate in starts a second, minute or hour, so that it is at least one."""
    for seconds, unit in ((1, "second"), (60, "minute")):
        if rate * seconds >= 1:
            return f"{rate * seconds:,.6g} starts a {unit}"
    return f"{rate * 3600:,.6g} starts an hour"
