"""Where a ready task stands: whose turn it waits for, and what limits tell it apart by. (F2, F3, F5)

A queue that is neither fair nor shared out between levels is one line, and its tasks have the lane "".
"""

from ..._model.queue import Fairness, QueueSettings, level_of

REST = "rest"
"""The tier of the levels that have no share of their own."""

_BETWEEN = "\x1f"  # between tier and tenant; no name has it in it
_BEYOND = "\x20"  # sorts right after it
_END = chr(0x10FFFF)


def lane_of(settings: QueueSettings | None, tenant: str, priority: int) -> str:
    """The lane of a task: its tier, where levels have shares, and its tenant, where the queue is fair."""
    if settings is None or not settings.is_laned:
        return ""
    whose = "" if settings.fairness is Fairness.FIFO else tenant
    shares = settings.ordering.shares
    if not shares:
        return whose
    level = level_of(priority)
    return f"{level.value if level in shares else REST}{_BETWEEN}{whose}"


def changes_lanes(before: QueueSettings | None, after: QueueSettings | None) -> bool:
    """Whether tasks belong into other lanes under the new settings than under the old ones."""
    return _shape(before) != _shape(after)


def _shape(settings: QueueSettings | None) -> tuple[bool, frozenset[str]]:
    if settings is None:
        return False, frozenset()
    return settings.fairness is not Fairness.FIFO, frozenset(settings.ordering.shares)


def tenant_of(lane: str) -> str:
    """The tenant whose lane it is."""
    return lane.partition(_BETWEEN)[2] if _BETWEEN in lane else lane


def tiers(settings: QueueSettings | None) -> dict[str, int]:
    """The tiers that a queue's picks are shared out between, and what percentage is theirs."""
    shares = {} if settings is None else settings.ordering.shares
    if not shares:
        return {"": 100}
    named = {level.value: share for level, share in shares.items()}
    rest = 100 - sum(named.values())
    return {**named, REST: rest} if rest else named


def lane_range(tier: str) -> tuple[str, str]:
    """Between which names the lanes of a tier lie: not below the first, and below the second."""
    return (f"{tier}{_BETWEEN}", f"{tier}{_BEYOND}") if tier else ("", _END)
