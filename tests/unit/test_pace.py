"""Many workers poll and stand for election less often each, and a few as often as they are told."""

import pytest

from windlass._policy.order.pace import LONGEST_POLL, candidate_interval, poll_interval


@pytest.mark.parametrize(
    ("workers", "seconds"), [(1, 2.0), (500, 2.0), (3_000, 12.0), (5_000, 20.0), (10_000, LONGEST_POLL)]
)
def test_five_hundred_workers_poll_as_often_as_one(workers: int, seconds: float) -> None:
    assert poll_interval(2.0, workers) == seconds


def test_a_longer_poll_that_was_asked_for_stays() -> None:
    assert poll_interval(3600.0, 100_000) == 3600.0


@pytest.mark.parametrize(("workers", "seconds"), [(1, 2.5), (125, 2.5), (1_000, 20.0), (10_000, 200.0)])
def test_few_of_many_stand_for_election_at_a_time(workers: int, seconds: float) -> None:
    assert candidate_interval(2.5, workers) == seconds
