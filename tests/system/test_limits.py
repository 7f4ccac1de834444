"""Limits: 64 claimers in 8 processes, some of which are killed. None is exceeded, none leaks. (F4, F5)"""

import os
import secrets
from random import Random

import pytest

from tests.examples import FULL
from tests.system.fleet import Fleet, Schedule
from tests.system.limiting import (
    cap_them,
    checked_caps,
    checked_rate,
    enqueue_them,
    looking,
    rate_them,
)
from tests.system.program import CAPS
from tests.system.storm import Storm

PROCESSES, SLOTS = 8, 8
SECONDS = 10 if FULL else 6
RATED_SECONDS = 15
EACH, NAP = (80, 0.02) if FULL else (20, 0.1)  # tasks under each key for each that may run, and their seconds
pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]


@pytest.mark.full
def test_caps_hold_whoever_is_killed(fleet: Fleet) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    print(f"WINDLASS_SEED={seed}")  # noqa: T201 - to run the same storm again
    schedule = Schedule()
    storm = Storm(fleet, Random(seed), schedule, slots=SLOTS)
    for second in range(1, SECONDS):
        schedule.at(second, storm.kill)

    cap_them(fleet)
    enqueue_them(fleet, each=EACH if fleet.server else 2 * EACH, seconds=NAP)
    with looking(fleet) as looks:
        fleet.start_ready(PROCESSES, slots=SLOTS)
        schedule.run()
        fleet.drain(60)
    report = checked_caps(fleet, looks)

    print(report.lines())  # noqa: T201 - seen if the test fails, or with -s
    assert report.violations == []
    assert report.numbers["attempts lost with a worker"] > 0
    assert looks.number > 100
    # As many ran as may: otherwise nothing was proved.
    assert [report.numbers[f"most held, cap {cap}"] for cap in CAPS] == list(CAPS)


def test_a_rate_holds_whoever_is_killed(fleet: Fleet) -> None:
    schedule = Schedule()
    storm = Storm(fleet, Random(1), schedule)
    for second in (3, 6, 9):
        schedule.at(second, storm.kill)

    fleet.start_ready(4)
    rate_them(fleet, seconds=RATED_SECONDS)
    schedule.run()
    fleet.drain(60)

    checked_rate(fleet, print)
