"""The estimate of the server's time: never behind, and ahead by less than the quickest round trip."""

import pytest

from windlass._stores.redis import clock as module
from windlass._stores.redis.clock import StoreClock
from windlass._stores.redis.rows import instant

AHEAD = 1_700_000_000_000_000  # microseconds that the server's clock is ahead of ours


class Monotonic:
    """Our own clock, in microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 5_000_000
        monkeypatch.setattr(module, "monotonic_ns", lambda: self.at * 1000)

    def round_trip(self, clock: StoreClock, there: int, back: int, *, ahead: int = AHEAD) -> None:
        """Send a request and receive the reply, each taking this long."""
        sent_at = self.at * 1000
        read = self.at + there + ahead
        self.at += there + back
        clock.observe(read, sent_at)

    def error(self, clock: StoreClock, ahead: int = AHEAD) -> int:
        """How far the estimate is ahead of the server."""
        assert clock.now is not None
        return instant(clock.now) - (self.at + ahead)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    return Monotonic(monkeypatch)


def test_nothing_is_known_before_the_first_reply_and_long_after_the_last(ours: Monotonic) -> None:
    clock = StoreClock(None)
    assert clock.now is None

    ours.round_trip(clock, 100, 100)
    assert clock.now is not None

    ours.at += 121_000_000
    assert clock.now is None


@pytest.mark.parametrize(("there", "back"), [(100, 100), (3_000_000, 50), (50, 3_000_000)])
def test_the_estimate_is_never_behind(ours: Monotonic, there: int, back: int) -> None:
    """Whether the process was held up before the request left, or before it saw the reply."""
    clock = StoreClock(None)

    ours.round_trip(clock, there, back)

    assert ours.error(clock) == there
    assert (ours.at + AHEAD) - instant(clock.surely) == back


def test_the_quickest_reply_counts(ours: Monotonic) -> None:
    clock = StoreClock(None)
    for there, back in ((500, 500), (80, 90), (2_000_000, 10), (300, 20)):
        ours.round_trip(clock, there, back)

    assert ours.error(clock) == 80


def test_a_quick_reply_is_outdated_after_a_minute(ours: Monotonic) -> None:
    clock = StoreClock(None)
    ours.round_trip(clock, 80, 90)
    ours.at += 61_000_000

    ours.round_trip(clock, 300, 20)

    assert ours.error(clock) == 300


@pytest.mark.parametrize("step", [-600_000_000, 600_000_000])
def test_a_server_with_another_time_is_believed_at_once(ours: Monotonic, step: int) -> None:
    clock = StoreClock(None)
    ours.round_trip(clock, 80, 90)

    ours.round_trip(clock, 400, 400, ahead=AHEAD + step)

    assert ours.error(clock, AHEAD + step) == 400
