"""The store's time: the server's, estimated between two replies, or that of a test's clock."""

from datetime import datetime
from time import monotonic_ns

from ...._store.clock import Clock
from ..rows import instant, moment

_FRESH_NS = 60_000_000_000


class StoreClock:
    """Scripts read the server's clock; what is decided here uses an estimate of it.

    A reply with the server's time bounds the distance between its clock and our monotonic one: it was read
    after the request was sent, and before the reply arrived. The estimate is the highest lower bound so far,
    unless a newer upper bound is below it. So it is behind the server by the way of the quickest reply, it
    is never before the time in any reply that has arrived, and being held up for seconds does not spoil it.
    """

    def __init__(self, test_clock: Clock | None) -> None:
        self.test_clock = test_clock
        self._offset: int | None = None  # microseconds that the server's clock is ahead of ours
        self._observed_at = 0

    @property
    def argument(self) -> str | int:
        """What scripts take as the time: "" for the server's."""
        return "" if self.test_clock is None else instant(self.test_clock.now())

    def observe(self, microseconds: bytes | int, sent_at: int) -> None:
        """Note the server's time of a reply that has just arrived, and when the request was sent."""
        self._observed_at = monotonic_ns()
        lower = int(microseconds) - self._observed_at // 1000
        upper = int(microseconds) - sent_at // 1000
        self._offset = lower if self._offset is None else min(max(self._offset, lower), upper)

    @property
    def now(self) -> datetime | None:
        """The present time; None if no reply of the last minute had it."""
        if self.test_clock is not None:
            return self.test_clock.now()
        present = monotonic_ns()
        if self._offset is None or present - self._observed_at > _FRESH_NS:
            return None
        return moment(self._offset + present // 1000)
