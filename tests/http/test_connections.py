"""Which connections are closed to make room, and which requests are refused."""

import logging

import pytest

from windlass._http.server import connections as bounds
from windlass._http.server.connections import ConnectionLimits, Connections, Place

RESERVED = 2


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RESERVED", RESERVED)


class Line:
    """A connection that only notes that it was closed."""

    def __init__(self, address: str = "a") -> None:
        self.address = address
        self.place: Place | None = None
        self.closed = False

    def evict(self) -> None:
        self.closed = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(among: Connections, number: int, place: Place = Place.UNUSED, address: str = "a") -> list[Line]:
    lines = [Line(address) for _ in range(number)]
    for one in lines:
        among.add(one)
        among.move(one, place)
    return lines


def test_the_oldest_unused_connection_makes_room() -> None:
    among = Connections(ConnectionLimits(total=3))
    idle = opened(among, 2, Place.IDLE)
    first, *others = opened(among, 3)
    assert len(among) == 5
    (new,) = opened(among, 1)
    assert first.closed
    assert not any(one.closed for one in (*others, *idle, new))
    assert len(among) == 5


def test_then_idle_ones_then_those_whose_client_does_not_read() -> None:
    clock = Clock()
    among = Connections(ConnectionLimits(total=3), clock=clock)
    unread = opened(among, 1, Place.UNREAD) + opened(among, 1, Place.BUSY)
    idle = opened(among, 3, Place.IDLE)
    for one in idle:
        opened(among, 1, Place.BUSY)
        assert one.closed
    (fresh,) = opened(among, 1)
    assert fresh.closed  # the one that does not read may still begin to
    clock.now = bounds.UNREAD_SECONDS
    opened(among, 1, Place.BUSY)
    assert [one.closed for one in unread] == [True, False]


def test_responses_that_nobody_reads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_UNREAD_BYTES", 100)
    among = Connections()
    slow, reading, other, large = opened(among, 4, Place.BUSY)
    for one in (slow, reading, other):
        among.hold_unread(one, 33)
    among.move(reading, Place.IDLE)
    among.hold_unread(reading, 33)
    assert not any(one.closed for one in (slow, reading, other))

    among.hold_unread(large, 60)

    assert [one.closed for one in (slow, other, reading, large)] == [True, True, False, False]
    among.hold_unread(*opened(among, 1, Place.BUSY), 1_000)
    assert [one.closed for one in (reading, large)] == [True, True]
    assert len(among) == 1  # one alone may be as large as it is


def test_memory_is_returned_once_after_many_unread_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "WORTH_RETURNING", 100)
    returned: list[int] = []
    among = Connections(return_memory=lambda: returned.append(len(among)))
    one, other, small = opened(among, 3, Place.BUSY)
    for line in (one, other):
        among.hold_unread(line, 50)
    among.remove(one)
    assert returned == []

    among.move(other, Place.IDLE)
    assert returned == [2]

    among.hold_unread(small, 99)
    among.remove(small)
    assert returned == [2]


def test_without_one_to_close_the_new_one_is_closed() -> None:
    among = Connections(ConnectionLimits(total=3))
    busy = opened(among, 3 + RESERVED, Place.BUSY)
    (new,) = opened(among, 1)
    assert new.closed
    assert not any(one.closed for one in busy)
    among.move(new, Place.BUSY)
    among.remove(new)
    assert len(among) == 3 + RESERVED


def test_requests_in_progress_are_bounded_but_for_urgent_ones() -> None:
    among = Connections(ConnectionLimits(total=3), urgent=[b"/healthz"])
    opened(among, 2, Place.BUSY)
    opened(among, 1, Place.UNREAD)
    (new,) = opened(among, 1)
    refused = among.refusal(new, b"/tasks")
    assert refused is not None
    assert (refused.status, refused.code) == (503, "busy")
    assert among.refusal(new, b"/healthz") is None


def test_an_address_takes_its_own_places() -> None:
    among = Connections(ConnectionLimits(total=9, per_address=2), urgent=[b"/healthz"])
    others = opened(among, 1, address="b")
    first, second = opened(among, 2)
    opened(among, 1)
    assert (first.closed, second.closed, others[0].closed) == (True, False, False)


def test_an_address_with_requests_in_progress_is_refused() -> None:
    among = Connections(ConnectionLimits(total=9, per_address=2), urgent=[b"/healthz"])
    busy = opened(among, 2, Place.BUSY)
    (new,) = opened(among, 1)
    (other,) = opened(among, 1, address="b")
    refused = among.refusal(new, b"/tasks")
    assert refused is not None
    assert refused.status == 429
    assert among.refusal(new, b"/healthz") is None
    assert among.refusal(other, b"/tasks") is None
    among.remove(busy[0])
    assert among.refusal(new, b"/tasks") is None


def test_refusals_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    among = Connections(ConnectionLimits(total=1), clock=clock)
    opened(among, 1, Place.BUSY)
    (new,) = opened(among, 1)
    with caplog.at_level(logging.WARNING, "windlass.http"):
        for _ in range(100):
            among.refusal(new, b"/tasks")
        clock.now += bounds.WARN_SECONDS
        among.refusal(new, b"/tasks")
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "refused 1 request(s)",
        "refused 100 request(s)",
    ]
