"""Common parts of all runs: the result on stdout, statistics, memory use."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sized
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from benchmarks.figures import percentile
from benchmarks.processes import READY

IDLE_SECONDS = 1.0
QUIET_SECONDS = 1.0
LIMIT_SECONDS = 100.0
FIRST_SECONDS = 10.0  # without any task, if others take all
LOOK_SECONDS = 0.002
_PAGE = 4096

T = TypeVar("T")


def main(verbs: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Run the command and print its result as the last line."""
    _, verb, options = sys.argv
    print(json.dumps(verbs[verb](**json.loads(options))))


def ready() -> None:
    """Report to the parent process that this one is ready."""
    print(READY, flush=True)


async def told(word: str) -> None:
    """Wait for this word from the parent process; report readiness first if it is "go"."""
    if word == "go":
        ready()
    line = await asyncio.to_thread(sys.stdin.readline)
    assert line.strip() in {word, ""}, f"waited for {word!r}, was told {line!r}"


def wait_for_go() -> None:
    """Report readiness and wait for the word "go", without an event loop."""
    ready()
    assert sys.stdin.readline().strip() == "go"


def looped(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop, like every asyncio side."""
    return uvloop.run(work)


async def sent(number: int, gap: float, enqueue: Callable[[int], Awaitable[Any]]) -> dict[str, Any]:
    """Enqueue 0, 1, 2, … with a gap in seconds; return the start of each call, and the rate without gaps."""
    began = []
    taken = 0.0
    for n in range(number):
        began.append(time.time())
        started = time.perf_counter()
        await enqueue(n)
        taken += time.perf_counter() - started
        if gap:
            await asyncio.sleep(gap)
    return {"rate": number / taken, "sent": began}


def sent_blocking(number: int, gap: float, enqueue: Callable[[int], Any]) -> dict[str, Any]:
    """Do the same without an event loop."""
    began = []
    taken = 0.0
    for n in range(number):
        began.append(time.time())
        started = time.perf_counter()
        enqueue(n)
        taken += time.perf_counter() - started
        time.sleep(gap)
    return {"rate": number / taken, "sent": began}


def spread(seconds: list[float]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds."""
    return {"p50": percentile(seconds, 0.50) * 1000, "p99": percentile(seconds, 0.99) * 1000}


def resident() -> float:
    """Return the memory of this process in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6


def idle_share() -> float:
    """Return the CPU use of this process while idle, in percent of one processor."""
    used, began = time.process_time(), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return (time.process_time() - used) / (time.perf_counter() - began) * 100


def exactly_once(seen: list[int], number: int) -> None:
    """Raise unless every task ran exactly once."""
    assert sorted(seen) == list(range(number)), f"{len(seen)} runs of {len(set(seen))} tasks, not {number}"


def wait_for(noted: Sized, number: int) -> float:
    """Wait until this many are noted; return when that was, by the clock that all processes share."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(noted) < number:
        assert time.monotonic() < deadline, f"{len(noted)} of {number} after {LIMIT_SECONDS:g} s"
        time.sleep(LOOK_SECONDS)
    return time.monotonic()


def drained(seen: Collection[int], number: int) -> dict[str, Any]:
    """Wait until every task has run; return the rate from now on, and the processor time of a task."""
    processor, started = time.process_time(), time.monotonic()
    taken = wait_for(seen, number) - started
    used = time.process_time() - processor
    exactly_once(list(seen), number)
    return {"rate": number / taken, "processor": used / number * 1e6}


def shared(seen: Collection[int]) -> dict[str, Any]:
    """Wait until no task has run for a second; return which ran, and when that began and ended."""
    began = last = time.monotonic()
    known = 0
    while time.monotonic() - last < (QUIET_SECONDS if known else FIRST_SECONDS):
        if len(seen) > known:
            known, last = len(seen), time.monotonic()
        time.sleep(LOOK_SECONDS)
    return {"began": began, "ended": last, "seen": list(seen)}
