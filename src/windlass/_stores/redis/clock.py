"""The store's time: the server's, estimated between two replies, or that of a test's clock."""

from datetime import datetime
from time import monotonic_ns

from ..._clock import Clock
from .rows import instant, moment

_FRESH_NS = 60_000_000_000


class StoreClock:
    """Scripts read the server's clock; what is decided here uses the last reply and the time since then."""

    def __init__(self, test_clock: Clock | None) -> None:
        self.test_clock = test_clock
        self._offset = 0  # microseconds from our monotonic clock to the server's
        self._observed_at: int | None = None

    @property
    def argument(self) -> str | int:
        """What scripts take as the time: "" for the server's."""
        return "" if self.test_clock is None else instant(self.test_clock.now())

    def observe(self, microseconds: bytes | int) -> None:
        """Note the server's time, as a reply has it."""
        self._observed_at = monotonic_ns()
        self._offset = int(microseconds) - self._observed_at // 1000

    @property
    def now(self) -> datetime | None:
        """The present time; None if no reply of the last minute had it."""
        if self.test_clock is not None:
            return self.test_clock.now()
        passed = monotonic_ns()
        if self._observed_at is None or passed - self._observed_at > _FRESH_NS:
            return None
        return moment(self._offset + passed // 1000)
