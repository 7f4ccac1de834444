"""Lanes: the groups of ready tasks that a queue's picks are divided between.

A lane is a tier (levels of priority that share a percentage of the picks) and a tenant. A queue that has
neither shares nor fairness has a single lane, "".
"""

from ..._model.queue import Fairness, QueueSettings, level_of

REST = "rest"  # the tier of the levels without a share of their own
_SEPARATOR = "\x1f"  # between tier and tenant; never part of a name
_BEYOND = "\x20"  # sorts right after the separator
_END = chr(0x10FFFF)


def lane_of(settings: QueueSettings | None, tenant: str, priority: int) -> str:
    """Return a task's lane: its tier if levels have shares, and its tenant if the queue is fair."""
    if settings is None or not settings.is_laned:
        return ""
    whose = "" if settings.fairness is Fairness.FIFO else tenant
    shares = settings.ordering.shares
    if not shares:
        return whose
    level = level_of(priority)
    return f"{level.value if level in shares else REST}{_SEPARATOR}{whose}"


def changes_lanes(before: QueueSettings | None, after: QueueSettings | None) -> bool:
    """Whether tasks belong in other lanes after this change of settings."""
    return _shape(before) != _shape(after)


def _shape(settings: QueueSettings | None) -> tuple[bool, frozenset[str]]:
    if settings is None:
        return False, frozenset()
    return settings.fairness is not Fairness.FIFO, frozenset(settings.ordering.shares)


def tenant_of(lane: str) -> str:
    """Return the tenant of a lane."""
    return lane.partition(_SEPARATOR)[2] if _SEPARATOR in lane else lane


def tiers(settings: QueueSettings | None) -> dict[str, int]:
    """Return the tiers of a queue, and the percentage of its picks that each is guaranteed."""
    shares = {} if settings is None else settings.ordering.shares
    if not shares:
        return {"": 100}
    named = {level.value: share for level, share in shares.items()}
    rest = 100 - sum(named.values())
    return {**named, REST: rest} if rest else named


def lane_range(tier: str) -> tuple[str, str]:
    """Return the half-open range of names that a tier's lanes are in."""
    return (f"{tier}{_SEPARATOR}", f"{tier}{_BEYOND}") if tier else ("", _END)
