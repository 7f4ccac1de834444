"""A worker's tally in a shared file: which tasks ran, how often, and when first.

It is kept in shared memory, so that reading it costs neither worker nor server anything; it has its full
size from the start, so that counting does not add to a worker's memory growth.
"""

import time
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

HEAD = WORD = 8
MOST = 255  # highest number of runs of one task that can be counted


class Tally:
    """Counts all runs of `number` tasks, numbered from 0, and the first start and the runs of each."""

    def __init__(self, path: Path, number: int) -> None:
        with path.open("r+b") as file:
            view = memoryview(mmap(file.fileno(), 0))
        self._count = view[:HEAD].cast("q")
        self.starts = view[HEAD : HEAD + WORD * number].cast("d")
        self.runs = view[HEAD + WORD * number :]

    @classmethod
    def made(cls, path: Path, number: int) -> "Tally":
        """Create an empty tally."""
        path.write_bytes(bytes(HEAD + WORD * number + number))
        return cls(path, number)

    def note(self, n: int) -> None:
        """Record that task `n` starts now, by the machine's clock, which all processes share."""
        if not self.runs[n]:
            self.starts[n] = time.time()
        if self.runs[n] < MOST:
            self.runs[n] += 1
        self._count[0] += 1

    @property
    def count(self) -> int:
        """Return the number of starts, repeats included."""
        return self._count[0]


def first_start(tallies: Sequence[Tally]) -> float:
    """Return when the first task started."""
    return min(start for tally in tallies for start in tally.starts if start)


def amiss(tallies: Sequence[Tally], times: int = 1) -> tuple[int, int]:
    """Return how many runs are missing and how many are surplus, if each task was enqueued `times` times."""
    runs = [sum(of_one) - times for of_one in zip(*(tally.runs for tally in tallies), strict=True)]
    return -sum(number for number in runs if number < 0), sum(number for number in runs if number > 0)
