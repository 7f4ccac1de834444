"""Parse priorities: an integer, or one of three names."""

from ...errors import InvalidOption
from ..input.quote import quoted

PRIORITIES = {"high": 10, "medium": 0, "low": -10}
MIN_PRIORITY, MAX_PRIORITY = -100, 100


def parse_priority(value: int | str) -> int:
    """Parse a priority: an integer, higher first, or one of the three names."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(
            f"priority must be an integer or one of {', '.join(PRIORITIES)}, got {quoted(value)}"
        )
    if not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidOption(f"priority must be from {MIN_PRIORITY} to {MAX_PRIORITY}, got {quoted(value)}")
    return value
