"""Noticing that the store's clock was set forward. (D3)

Sessions end by that clock. A forward step (NTP, a machine that was asleep) ends those of healthy workers
too, which would renew them within a heartbeat if they were only given the time. A step back ends nothing.
"""

from datetime import datetime
from time import monotonic

from .._store.protocol import Store


class ClockWatch:
    """Compares the store's clock with one that nobody sets."""

    def __init__(self) -> None:
        self._last: tuple[datetime, float] | None = None

    async def step(self, store: Store) -> float:
        """Seconds by which the store's clock has run ahead since the last look; no more than is certain."""
        before = monotonic()
        now = await store.now()
        after = monotonic()
        last, self._last = self._last, (now, before)
        if last is None:
            return 0.0
        return (now - last[0]).total_seconds() - (after - last[1])
