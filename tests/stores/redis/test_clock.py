"""The estimate of the server's time: never ahead, and behind by no more than the quickest reply took."""

import pytest

from windlass._stores.redis import database as module
from windlass._stores.redis.database import StoreClock
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

    def lag(self, clock: StoreClock, ahead: int = AHEAD) -> int:
        """How far the estimate is behind the server."""
        assert clock.now is not None
        return self.at + ahead - instant(clock.now)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    return Monotonic(monkeypatch)


def test_nothing_is_known_before_the_first_reply_and_long_after_the_last(ours: Monotonic) -> None:
    clock = StoreClock(None)
    assert clock.now is None

    ours.round_trip(clock, 100, 100)
    assert clock.now is not None

    ours.at += 61_000_000
    assert clock.now is None


@pytest.mark.parametrize(("there", "back"), [(100, 100), (3_000_000, 50), (50, 3_000_000)])
def test_the_estimate_is_behind_by_the_way_of_the_reply(ours: Monotonic, there: int, back: int) -> None:
    clock = StoreClock(None)

    ours.round_trip(clock, there, back)

    assert ours.lag(clock) == back


def test_being_held_up_does_not_spoil_it(ours: Monotonic) -> None:
    """Neither before a request leaves, nor before its reply is seen."""
    clock = StoreClock(None)
    for there, back in ((500, 500), (80, 90), (2_000_000, 10), (30, 4_000_000), (300, 20)):
        ours.round_trip(clock, there, back)

    assert ours.lag(clock) == 10


@pytest.mark.parametrize("step", [-600_000_000, 600_000_000])
def test_a_server_with_another_time_is_believed_at_once(ours: Monotonic, step: int) -> None:
    """Its clock was set, or another server is the primary."""
    clock = StoreClock(None)
    ours.round_trip(clock, 80, 90)

    ours.round_trip(clock, 400, 300, ahead=AHEAD + step)

    assert -400 <= ours.lag(clock, AHEAD + step) <= 300
