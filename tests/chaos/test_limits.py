"""Limits for a minute: caps in a storm, a rate while workers are killed; and mutants, all of them caught.

WINDLASS_LIMITS_SECONDS says how long; WINDLASS_SEED makes the same plan again.
"""

import os
import secrets
from collections.abc import Callable
from random import Random

import pytest

from tests.chaos.test_mutants import Mutant, mutate
from tests.system.checker import Report
from tests.system.fleet import Fleet, Schedule
from tests.system.limiting import (
    ROUNDING,
    cap_them,
    checked_caps,
    checked_rate,
    enqueue_them,
    history_of,
    looking,
    rate_them,
    rated,
)
from tests.system.outages import ServerFleet, ServerStorm
from tests.system.program import CAPS
from tests.system.storm import Storm

SECONDS = int(os.environ.get("WINDLASS_LIMITS_SECONDS", "60"))
STORES = ("sqlite", "postgres")
PROCESSES, SLOTS = 8, 8
TASKS_A_SECOND = 6.0  # for each that may run, at least: so that there is work until the end of the storm
pytestmark = pytest.mark.chaos


@pytest.fixture
def fleet(fleet_on_each: Fleet) -> Fleet:
    return fleet_on_each


def test_caps_hold_in_a_storm(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    schedule = Schedule()
    storm = _storm(fleet, Random(seed), schedule)
    faults = _faults(storm)
    for second in range(1, SECONDS):
        schedule.at(second, storm.random.choices(list(faults), list(faults.values()))[0])

    cap_them(fleet)
    enqueue_them(fleet, each=round(TASKS_A_SECOND * SECONDS), seconds=0.05)
    with looking(fleet) as looks:
        fleet.start_ready(PROCESSES, slots=SLOTS)
        schedule.run()
        fleet.drain(180)
    report = checked_caps(fleet, looks)

    with capsys.disabled():
        _tell(f"caps on {_name(fleet)}, WINDLASS_SEED={seed}", report)
    assert report.violations == []
    assert report.numbers["attempts lost with a worker"] > 0
    assert [report.numbers[f"most held, cap {cap}"] for cap in CAPS] == list(CAPS)


def test_a_rate_holds_for_a_minute(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    schedule = Schedule()
    storm = Storm(fleet, Random(1), schedule)
    for second in range(5, SECONDS, 5):
        schedule.at(second, storm.kill)

    fleet.start_ready(PROCESSES, slots=SLOTS)
    rate_them(fleet, seconds=SECONDS)
    schedule.run()
    fleet.drain(120)

    with capsys.disabled():
        print(f"\na rate on {_name(fleet)}")  # noqa: T201
        checked_rate(fleet, print)


def _name(fleet: Fleet) -> str:
    return "postgres" if fleet.server else "sqlite"


def _storm(fleet: Fleet, random: Random, schedule: Schedule) -> Storm:
    if isinstance(fleet, ServerFleet):
        return ServerStorm(fleet, random, schedule, slots=SLOTS)
    return Storm(fleet, random, schedule, slots=SLOTS)


def _faults(storm: Storm) -> dict[Callable[[], None], int]:
    """No freezes: who wakes up behind his lease runs on for a moment, which no store can help."""
    faults: dict[Callable[[], None], int] = {storm.kill: 60, storm.kill_leader: 10, storm.terminate: 10}
    if isinstance(storm, ServerStorm):
        faults |= {storm.cut: 5, storm.cut_after_commits: 10, storm.cut_before: 5}
        faults |= {storm.end_connections: 5, storm.end_listeners: 3, storm.restart: 5}
    return faults


def _tell(name: str, report: Report) -> None:
    verdict = "BROKEN" if report.violations else "every limit held"
    print(f"\n{name}\n{report.lines()}\n  verdict: {verdict}")  # noqa: T201


# -- mutants -----------------------------------------------------------------------------------------


def too_many(fleet: Fleet) -> None:
    """Caps, with as many claimers as can be."""
    cap_them(fleet)
    enqueue_them(fleet, each=10, seconds=0.02)
    with looking(fleet) as looks:
        fleet.start_ready(4, slots=SLOTS)
        fleet.drain(60)
    report = checked_caps(fleet, looks)
    assert report.violations == [], report.lines()


def too_soon(fleet: Fleet) -> None:
    """A rate."""
    fleet.start_ready(2)
    rate_them(fleet, seconds=4)
    fleet.drain(60)
    found = rated(history_of(fleet), "quick")
    assert found.claims.excess <= ROUNDING, found.lines()


MUTANTS = [
    Mutant("one more runs than may", too_many),
    Mutant("a rate is faster than it says", too_soon),
    Mutant("a bucket is fuller than it can be", too_soon),
]
UNLOCKED = Mutant("permits are counted without a lock", too_many)
ALL = [(store, mutant) for mutant in MUTANTS for store in STORES] + [("postgres", UNLOCKED)]


@pytest.mark.parametrize(
    ("fleet_on_each", "mutant"),
    ALL,
    indirect=["fleet_on_each"],
    ids=[f"{mutant.mistake}, {store}" for store, mutant in ALL],
)
def test_a_mutant_is_caught(fleet: Fleet, mutant: Mutant) -> None:
    mutate(fleet, mutant.mistake)

    with pytest.raises(AssertionError) as caught:
        mutant.provoke(fleet)

    print(f"{mutant.mistake}: {caught.value}")  # noqa: T201


@pytest.mark.parametrize("provoke", [too_many, too_soon])
def test_the_sound_one_is_not(fleet: Fleet, provoke: Callable[[Fleet], None]) -> None:
    provoke(fleet)
