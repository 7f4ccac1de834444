"""Histograms of durations: fixed logarithmic cells, four an octave, so that any two can be added.

A duration is known to within 9 percent. Cell 0 has all below 1 ms, the last one all above 35 days.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
    return tuple(value for cell in sorted(numbers) if numbers[cell] for value in (cell, numbers[cell]))


def added(histograms: Iterable[Histogram]) -> Histogram:
    """Add up histograms."""
    total: Counter[int] = Counter()
    for one in histograms:
        for cell, number in _cells(one):
            total[cell] += number
    return histogram(total)


def quantile(durations: Histogram, share: float) -> float | None:
    """Return the seconds that this share of the durations does not exceed; None if there are none."""
    rank = ceil(share * sum(durations[1::2]))
    for cell, number in _cells(durations):
        rank -= number
        if rank <= 0:
            return seconds_of(cell)
    return None


def _cells(durations: Histogram) -> Iterator[tuple[int, int]]:
    return zip(durations[::2], durations[1::2], strict=True)
