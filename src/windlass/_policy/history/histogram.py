"""Histograms of durations: fixed logarithmic cells, four an octave, so that any two can be added.

A duration is known to within 9 percent. Cell 0 has all below 1 ms, the last one all above 35 days.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from math import ceil

from ..._model.record import Histogram

_AN_OCTAVE = 4
_SHORTEST = 0.001  # seconds

EDGES = [_SHORTEST * 2 ** (number / _AN_OCTAVE) for number in range(127)]
"""The durations at which cells begin, in seconds: cell 1 at the first of them, cell 2 at the second, …"""

CELLS = len(EDGES) + 1


def cell_of(seconds: float) -> int:
    """Return the number of the cell that a duration is in."""
    return bisect_right(EDGES, seconds)


def seconds_of(cell: int) -> float:
    """Return the duration that stands for those in a cell: its middle."""
    return EDGES[cell - 1] * 2 ** (0.5 / _AN_OCTAVE) if cell else _SHORTEST / 2


def histogram(numbers: Mapping[int, int]) -> Histogram:
    """Return a histogram of the numbers by cell; empty cells are left out."""
    return tuple([value for cell in sorted(numbers) if numbers[cell] for value in (cell, numbers[cell])])


def added(histograms: Iterable[Histogram]) -> Histogram:
    """Add up histograms."""
    some = [one for one in histograms if one]
    if len(some) < 2:
        return some[0] if some else ()
    total: dict[int, int] = {}
    for one in some:
        values = iter(one)
        for cell, number in zip(values, values, strict=True):  # a page adds up hundreds of thousands
            total[cell] = total.get(cell, 0) + number
    return histogram(total)


def quantiles(durations: Histogram, shares: Iterable[float]) -> list[float]:
    """Return the seconds that each of these shares of the durations, in ascending order, does not exceed.

    Of no durations there are none.
    """
    if not durations:
        return []
    found, passed, values = [], 0, iter(durations)
    cell, whole = 0, sum(durations[1::2])
    for share in shares:
        while passed < ceil(share * whole):
            cell = next(values)
            passed += next(values)
        found.append(seconds_of(cell))
    return found
