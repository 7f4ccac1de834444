"""A worker's tally in a shared file: which tasks ran, how often, and when first.

It is kept in shared memory, so that a look at it costs neither worker nor server anything; it has its full
size from the start, so that a worker's memory does not grow because it is watched.
"""

import time
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

HEAD = WORD = 8
MOST = 255  # runs of one task that are told apart


class Tally:
    """Of `number` tasks, numbered from 0: how many runs in all; of each task its first start and its runs."""

    def __init__(self, path: Path, number: int) -> None:
        with path.open("r+b") as file:
            view = memoryview(mmap(file.fileno(), 0))
        self._count = view[:HEAD].cast("q")
        self.starts = view[HEAD : HEAD + WORD * number].cast("d")
        self.runs = view[HEAD + WORD * number :]

    @classmethod
    def made(cls, path: Path, number: int) -> "Tally":
        """A new one, with nothing in it."""
        path.write_bytes(bytes(HEAD + WORD * number + number))
        return cls(path, number)

    def note(self, n: int) -> None:
        """Task `n` starts now, by the clock of the machine, which all its processes share."""
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
    """When the first of all tasks started."""
    return min(start for tally in tallies for start in tally.starts if start)


def amiss(tallies: Sequence[Tally], times: int = 1) -> tuple[int, int]:
    """How many runs are missing, and how many too many, if each task was enqueued so many times."""
    runs = [sum(of_one) - times for of_one in zip(*(tally.runs for tally in tallies), strict=True)]
    return -sum(number for number in runs if number < 0), sum(number for number in runs if number > 0)
