"""The store's time: the server's, estimated between two replies, or that of a test's clock."""

from datetime import datetime
from time import monotonic_ns

from ..._clock import Clock
from .rows import instant, moment

_FRESH_NS = 60_000_000_000


class StoreClock:
    """Scripts read the server's clock; what is decided here uses an estimate of it.

    A reply with the server's time bounds the distance between its clock and our monotonic one: it was read
    after the request was sent, and before the reply arrived. The upper bound of the quickest reply of the
    last minute is used. So the estimate is ahead of the server by less than that round trip and never behind,
    and nothing seems to end before it did. A process that is held up for seconds does not spoil it. What may
    not begin early is decided by the lower bound, `surely`, or by the server's own time.
    """

    def __init__(self, test_clock: Clock | None) -> None:
        self.test_clock = test_clock
        self._sent_at: int | None = None  # of the reply that is used
        self._latest = 0  # the most that the server's clock may be ahead of ours, in microseconds
        self._earliest = 0

    @property
    def argument(self) -> str | int:
        """What scripts take as the time: "" for the server's."""
        return "" if self.test_clock is None else instant(self.test_clock.now())

    def observe(self, microseconds: bytes | int, sent_at: int) -> None:
        """Note the server's time of a reply that has just arrived, and when the request was sent."""
        latest = int(microseconds) - sent_at // 1000
        earliest = int(microseconds) - monotonic_ns() // 1000
        is_outdated = self._sent_at is None or sent_at - self._sent_at > _FRESH_NS
        is_quicker = latest - earliest <= self._latest - self._earliest
        was_set = latest < self._earliest or earliest > self._latest  # the server's clock, or it is another
        if is_outdated or is_quicker or was_set:
            self._sent_at, self._latest, self._earliest = sent_at, latest, earliest

    @property
    def surely(self) -> datetime:
        """An instant that has certainly passed on the server; call it only if `now` is known."""
        if self.test_clock is not None:
            return self.test_clock.now()
        return moment(self._earliest + monotonic_ns() // 1000)

    @property
    def now(self) -> datetime | None:
        """The present time; None if no reply of the last two minutes had it."""
        if self.test_clock is not None:
            return self.test_clock.now()
        present = monotonic_ns()
        if self._sent_at is None or present - self._sent_at > 2 * _FRESH_NS:
            return None
        return moment(self._latest + present // 1000)
