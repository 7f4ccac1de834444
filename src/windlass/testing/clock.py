"""A clock that stands still until the test turns it."""

import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Tells the same instant until somebody moves it. Any thread may read or move it."""

    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Where the clock stands, in UTC."""
        with self._lock:
            return self._now

    def advance(self, by: timedelta | float) -> datetime:
        """Move it by a duration, or by so many seconds; answers with the new now."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        with self._lock:
            self._now += step
            return self._now
