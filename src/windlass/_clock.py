"""The store's clock. Every instant windlass compares comes from it; tests hand in one they can turn."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time, in UTC."""

    def now(self) -> datetime:
        """The present instant, timezone-aware, in UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The present instant by the machine's clock."""
        return datetime.now(UTC)
