"""A drain by worker processes on one or several stores, and the processor time it takes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.processes import RunFailed, Running, run, running

PROGRAM = "on_windlass"


@dataclass(frozen=True)
class Drained:
    """The result: tasks a second on all stores, and the seconds of processor time of all workers."""

    rate: float
    processor: float


def fill(url: str, number: int) -> float:
    """Enqueue tasks in batches; return the rate."""
    rate: float = run(PROGRAM, "preload", url=url, number=number)["rate"]
    return rate


def drained(urls: Sequence[str], number: int, *, processes: int, slots: int) -> Drained:
    """Drain stores that have this many tasks each, by this many processes each, which start together."""
    with ExitStack() as stack:
        crew = [
            stack.enter_context(running(PROGRAM, "share", url=url, slots=slots))
            for url in urls
            for _ in range(processes)
        ]
        for worker in crew:
            worker.say("go")
        with ThreadPoolExecutor(len(crew)) as reading:  # An answer is larger than the buffer of a pipe.
            answers = list(reading.map(Running.answer, crew))
    runs = sorted(n for answer in answers for n in answer["seen"])
    if runs != sorted([*range(number)] * len(urls)):
        raise RunFailed(f"{len(runs)} runs of {len(urls)} x {number} tasks")
    began, ended = min(answer["began"] for answer in answers), max(answer["ended"] for answer in answers)
    return Drained(len(runs) / (ended - began), sum(answer["processor"] for answer in answers))


def check(url: str, number: int) -> None:
    """Raise RunFailed unless every task has its record."""
    run(PROGRAM, "recorded", url=url, number=number)
