"""What runs of both sides share: the answer on stdout, stopwatch statistics, a look at one's own memory."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import percentile
from benchmarks.processes import READY

IDLE_SECONDS = 1.0
_PAGE = 4096


def main(verbs: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Do what the command line asks, and print the answer as the last line."""
    _, verb, options = sys.argv
    print(json.dumps(verbs[verb](**json.loads(options))))


def ready() -> None:
    """Tell whoever started this process that it is at work."""
    print(READY, flush=True)


def spread(seconds: list[float]) -> dict[str, float]:
    """The usual two points of a distribution, in milliseconds."""
    return {"p50": percentile(seconds, 0.50) * 1000, "p99": percentile(seconds, 0.99) * 1000}


def resident() -> float:
    """Megabytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6


def idle_share() -> float:
    """Percent of one processor that this process takes while nothing is asked of it."""
    used, began = time.process_time(), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return (time.process_time() - used) / (time.perf_counter() - began) * 100


def exactly_once(seen: list[int], number: int) -> None:
    """Every task ran, and none ran twice; otherwise the run is void."""
    assert sorted(seen) == list(range(number)), f"{len(seen)} runs of {len(set(seen))} tasks, not {number}"
