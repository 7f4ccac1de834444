"""A drain: worker processes complete all tasks, timed from the first start to the last durable settlement."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import RunFailed, Running, running
from benchmarks.runs.tally import Tally, amiss, first_start
from benchmarks.sides import Count, Side

LOOK_SECONDS = 0.002
LIMIT_SECONDS = 600.0
PROBE_SHARE = 1  # the pause between two counts is at least this many times as long as a count takes
BLURRED = 0.05


@dataclass(frozen=True)
class Drained:
    """The result: tasks per second, tasks that never ran, and surplus runs."""

    rate: float
    lost: int
    repeated: int


def drained(side: Side, url: str, number: int, *, folder: Path, processes: int = 1) -> Drained:
    """Start this many workers together on tasks 0 to `number` - 1; return when all tasks have ended."""
    with ExitStack() as stack:
        crew, tallies = [], []
        for worker in range(processes):
            path = folder / f"tally-{worker}"
            tallies.append(Tally.made(path, number))
            options = {"url": url, "number": number, "tally": str(path), **side.settings}
            crew.append(stack.enter_context(running(side.program, "work", **options)))
        count = stack.enter_context(side.counting(url))
        began = time.time()
        for member in crew:
            member.say("go")
        wait_until(lambda: sum(tally.count for tally in tallies) >= number, crew, f"{side.who} ran {number}")
        ended = _settled(count, side, began)
        for member in crew:
            member.say("stop")
        for member in crew:
            member.answer()
    lost, repeated = amiss(tallies)
    return Drained(number / (ended - first_start(tallies)), lost, repeated)


def wait_until(is_so: Callable[[], bool], crew: list[Running], what: str) -> None:
    """Poll until the condition holds; raise RunFailed if a worker ends first or it takes too long."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise RunFailed(f"it was not seen within {LIMIT_SECONDS:g} s that {what}")
        for member in crew:
            if not member.is_alive:
                member.answer()
                raise RunFailed(f"a worker ended before {what}")
        time.sleep(LOOK_SECONDS)


def _settled(count: Count, side: Side, began: float) -> float:
    """Wait until no task is unfinished. Counting is rare if it is expensive."""
    deadline = time.monotonic() + LIMIT_SECONDS
    before = asked = time.time()
    while left := count(0):
        if time.monotonic() > deadline:
            raise RunFailed(f"{side.who}: {left} or more tasks had not ended after {LIMIT_SECONDS:g} s")
        time.sleep(max(LOOK_SECONDS, PROBE_SHARE * (time.time() - asked)))
        before, asked = asked, time.time()
    if (blur := (asked - before) / (asked - began)) > BLURRED:
        print(
            f"\n  {side.who}: the end of a drain is uncertain by {blur:.0%} of its duration", file=sys.stderr
        )
    return asked  # a count is as of the time when it was requested
