"""Workers are killed and frozen while tasks come in: every task ends, and exactly once. (D1, D5, D12)"""

import os
import secrets
from random import Random

import pytest

from tests.examples import FULL
from tests.system.fleet import Fleet, Schedule
from tests.system.storm import Storm

SECONDS = 20 if FULL else 10
WISHES = 2200 if FULL else 500  # with more than two tasks each
FREEZES = (3.5, 11.5) if FULL else (2.5,)
LEASES = 2.5 if FULL else 1.5  # that a frozen worker misses
pytestmark = [pytest.mark.system, pytest.mark.more, pytest.mark.timeout(150)]


def test_every_task_ends_once_whoever_is_killed(fleet: Fleet) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    print(f"WINDLASS_SEED={seed}")  # noqa: T201 - to run the same storm again
    schedule = Schedule()
    storm = Storm(fleet, Random(seed), schedule)
    for second in range(1, SECONDS + 1):
        schedule.at(second, storm.kill)
    for second in FREEZES:
        schedule.at(second, lambda: storm.freeze(LEASES * fleet.settings["lease"]))
    schedule.at(0.46 * SECONDS, storm.kill_producer)

    fleet.start_ready(4)
    storm.produce("p", seed=seed, wishes=WISHES, per_second=WISHES / SECONDS)
    schedule.run()
    storm.wait_for_producers(40)
    fleet.drain(40)
    report = fleet.checked()

    assert report.numbers["tasks"] >= 2 * WISHES
    assert report.numbers["fault kill"] == SECONDS + 1
    assert report.numbers["fault freeze"] == len(FREEZES)
    assert report.numbers["attempts lost with a worker"] > 0
