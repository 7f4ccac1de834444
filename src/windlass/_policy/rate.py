"""Rates as token buckets (GCRA). A bucket is one number: the time when it is full again, so 0 is full.

A bucket holds one second's worth, at least 1: within any t seconds at most that and t times the rate pass.
"""

from math import inf

_ROUNDING = 1e-6  # seconds, so that inexact sums of fractions do not cost a request


def burst(rate: float) -> float:
    """Return what a full bucket holds."""
    return max(rate, 1.0)


def left(full_at: float, rate: float, now: float) -> float:
    """Return what is left in a bucket."""
    return max(burst(rate) - (_debt(full_at, rate, now) - _ROUNDING) * rate, 0.0)


def refill(full_at: float, rate: float, now: float) -> float:
    """Return the seconds until a bucket is full."""
    return max(_debt(full_at, rate, now) - _ROUNDING, 0.0)


def wait(full_at: float, rate: float, cost: float, now: float) -> float:
    """Return the seconds until `cost` is left in a bucket: 0 if it is now, infinity if it never will be."""
    if cost > burst(rate):
        return inf
    seconds = _debt(full_at, rate, now) - (burst(rate) - cost) / rate
    return seconds if seconds > _ROUNDING else 0.0


def draw(full_at: float, rate: float, cost: float, now: float) -> float:
    """Return the bucket after `cost` was taken from it."""
    return now + _debt(full_at, rate, now) + cost / rate


def _debt(full_at: float, rate: float, now: float) -> float:
    """Return the seconds until it is full; at most those of an empty one, also if the rate was raised."""
    return min(max(full_at - now, 0.0), burst(rate) / rate)
