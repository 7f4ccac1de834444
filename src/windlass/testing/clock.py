"""A clock that tests advance by hand."""

import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until it is advanced. Thread-safe."""

    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        with self._lock:
            return self._now

    def advance(self, by: timedelta | float) -> datetime:
        """Advance by a duration or a number of seconds (negative: set back); return the new instant."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        with self._lock:
            self._now += step
            return self._now
