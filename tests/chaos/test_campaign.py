"""The long storm: every fault there is, for minutes, and every promise held against what happened.

WINDLASS_CHAOS_MINUTES, WINDLASS_CHAOS_TASKS and WINDLASS_CHAOS_FAULTS say how much of it; WINDLASS_SEED
makes the same plan again; WINDLASS_CHAOS_REPORT names a file for the figures, to which the store is added.
"""

import asyncio
import json
import os
import secrets
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from tests.system.checker import Report, check
from tests.system.fleet import Fleet, Schedule
from tests.system.storm import Storm

MINUTES = float(os.environ.get("WINDLASS_CHAOS_MINUTES", "4"))
TASKS = int(os.environ.get("WINDLASS_CHAOS_TASKS", "32000"))
FAULTS = int(os.environ.get("WINDLASS_CHAOS_FAULTS", "140"))
TASKS_A_WISH = 2.75  # as produce.py makes them, on average
WORKERS = 4
PRODUCERS = 2
DRAIN_SECONDS = 180


@pytest.mark.chaos
def test_every_promise_holds_in_a_long_storm(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    schedule = Schedule()
    storm = Storm(fleet, Random(seed), schedule, may_fill=True)
    seconds = MINUTES * 60
    wishes = int(TASKS / TASKS_A_WISH / PRODUCERS)
    began = monotonic()
    fleet.start_ready(WORKERS, may_fill=True)
    for number in range(PRODUCERS):
        pace = wishes / seconds * 1.1
        storm.produce(f"p{number}", seed=seed, wishes=wishes, per_second=pace, may_fill=True)
    plan(storm, schedule, seconds)

    schedule.run()
    storm.wait_for_producers(DRAIN_SECONDS)
    fleet.drain(DRAIN_SECONDS)
    report = check(asyncio.run(fleet.history()))

    with capsys.disabled():
        figures = tell("sqlite", report, seed, monotonic() - began)
    assert report.violations == []
    assert figures["faults"] >= FAULTS * 0.85  # some find nothing to be done to
    assert report.numbers["tasks"] >= TASKS * 0.9


def plan(storm: Storm, schedule: Schedule, seconds: float, faults: int = FAULTS) -> None:
    """Faults spread over the time by lot; each kind at least once."""
    kinds = storm.faults()
    chosen = list(kinds) + storm.random.choices(list(kinds), list(kinds.values()), k=faults - len(kinds))
    for fault in chosen:
        schedule.at(storm.random.uniform(2, seconds), fault)


def tell(store: str, report: Report, seed: int, seconds: float, **more: int) -> dict[str, int]:
    """Print the verdict, and keep the figures where the environment says; answers with them."""
    figures = {
        "seed": seed,
        "seconds": round(seconds),
        "faults": sum(number for name, number in report.numbers.items() if name.startswith("fault ")),
        "violations": len(report.violations),
        **more,
        **dict(sorted(report.numbers.items())),
    }
    print(f"\nchaos campaign on {store}, WINDLASS_SEED={seed}, {figures['seconds']} s")  # noqa: T201
    print(report.lines())  # noqa: T201
    print(f"  verdict: {'BROKEN' if report.violations else 'every promise held'}")  # noqa: T201
    print(json.dumps(figures))  # noqa: T201
    if path := os.environ.get("WINDLASS_CHAOS_REPORT"):
        told = Path(path)
        told.with_stem(f"{told.stem}-{store}").write_text(json.dumps(figures, indent=2))
    return figures
