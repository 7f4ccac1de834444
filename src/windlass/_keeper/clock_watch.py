"""Delay rescues after the store's clock was set forward."""

import logging
from datetime import datetime, timedelta
from time import monotonic

from .._store.protocol import Store

logger = logging.getLogger("windlass.keeper")


class ClockWatch:
    """Notices when the store's clock is set forward, and delays rescues until live workers have renewed.

    Sessions expire by the store's clock. A step forward (NTP, a suspended machine) expires those of healthy
    workers too, which renew them within a heartbeat; a step back expires nothing. Followers watch too: the
    step that expires sessions also expires the leader's lead.
    """

    def __init__(self, store: Store, lease: timedelta) -> None:
        self._store = store
        self._lease = lease.total_seconds()
        self._last: tuple[datetime, float] | None = None  # the store's time, and `monotonic` before it
        self._rescue_at = 0.0  # by `monotonic`

    async def look(self) -> float:
        """Read the store's clock; return the seconds for which rescues must wait."""
        before, now, after = monotonic(), await self._store.now(), monotonic()
        last, last_before = self._last or (now, after)
        self._last = now, before
        step = (now - last).total_seconds() - (after - last_before)  # by which it has certainly run ahead
        if step > self._lease / 10:
            logger.warning(
                "the store's clock was set forward by %.1f s; delaying rescues by %g s", step, self._lease / 2
            )
            self._rescue_at = monotonic() + self._lease / 2
        return max(self._rescue_at - monotonic(), 0.0)
