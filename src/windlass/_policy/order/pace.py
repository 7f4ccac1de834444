"""Pace: how often each of many idle workers calls the store, so that together they do not overload it.

Interchangeable workers lose nothing by it: together they poll as often as before.
"""

POLLS_PER_SECOND = 250
"""Claims without a wake, of all workers together."""

LONGEST_POLL = 30.0
"""Seconds: a hint that got lost costs a worker that is alone on its queue this much at most."""

CANDIDATES_PER_SECOND = 50
"""Attempts to become the leading keeper, of all workers together."""


def poll_interval(seconds: float, workers: int) -> float:
    """Return the seconds between two polls of one of so many workers, at least those given."""
    return max(seconds, min(workers / POLLS_PER_SECOND, LONGEST_POLL))


def candidate_interval(seconds: float, workers: int) -> float:
    """Return the seconds between two attempts of one of so many workers to lead, at least those given.

    Without a bound: whatever their number, one of them tries every moment.
    """
    return max(seconds, workers / CANDIDATES_PER_SECOND)
