"""The long storm on JetStream: owners that take over all the time, and nodes and a network that fail.

WINDLASS_CHAOS_MINUTES says how long all of it takes; the other variables are as for test_campaign.py.
"""

import asyncio
import os
import secrets
from dataclasses import replace
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from tests.chaos.test_campaign import DRAIN_SECONDS, PRODUCERS, TASKS_A_WISH, WORKERS, plan, tell
from tests.system.checker import check
from tests.system.fleet import Schedule
from tests.system.jetstream.campaign import Campaign, Plan
from tests.system.jetstream.disks import can_mount
from tests.system.jetstream_outages import JetStreamFleet, JetStreamStorm

SECONDS = 60 * float(os.environ.get("WINDLASS_CHAOS_MINUTES", "10"))
FLEET_SECONDS = 0.2 * SECONDS
TASKS = int(os.environ.get("WINDLASS_CHAOS_TASKS", "9000"))
FAULTS = int(os.environ.get("WINDLASS_CHAOS_FAULTS", "60"))
NEVER = (SECONDS, SECONDS)
TASKS_A_SECOND = 50
FAULTS_A_SECOND = 0.4
PLANS = {
    "every fault": Plan(0, 0.4 * SECONDS),
    "owners and network": Plan(0, 0.2 * SECONDS, owner_faults=(0.0, 0.6), node_faults=NEVER),
    "full disks": Plan(0, 0.12 * SECONDS, has_small_disks=True),
    "migration": Plan(
        0, 0.08 * SECONDS, old_schema=4, usurp_after=0.3, owner_faults=(0.0, 0.4), node_faults=NEVER
    ),
}


@pytest.mark.chaos
@pytest.mark.parametrize("name", PLANS)
def test_what_was_acknowledged_stands_in_a_long_storm(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if PLANS[name].has_small_disks and not can_mount():
        pytest.skip("only root can mount the disks that it fills")
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    chosen = replace(PLANS[name], seed=seed)
    began = monotonic()
    with Campaign.started(chosen, tmp_path) as campaign:
        report = asyncio.run(campaign.run())

    with capsys.disabled():
        figures = tell(f"jetstream, {name}", report, seed, monotonic() - began)
    assert report.violations == []
    assert figures["acknowledged"] > TASKS_A_SECOND * chosen.seconds
    assert figures["faults"] > FAULTS_A_SECOND * chosen.seconds


@pytest.mark.chaos
def test_every_promise_holds_in_a_long_storm_on_jetstream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real workers and producers, killed and frozen beside the owners and nodes of their store."""
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    schedule = Schedule()
    wishes = int(TASKS / TASKS_A_WISH / PRODUCERS)
    with JetStreamFleet.on_cluster(tmp_path) as fleet:
        storm = JetStreamStorm(fleet, Random(seed), schedule)
        began = monotonic()
        fleet.start_ready(WORKERS)
        for number in range(PRODUCERS):
            storm.produce(f"p{number}", seed=seed, wishes=wishes, per_second=wishes / FLEET_SECONDS * 1.1)
        plan(storm, schedule, FLEET_SECONDS, FAULTS)

        schedule.run()
        storm.wait_for_producers(DRAIN_SECONDS)
        fleet.drain(DRAIN_SECONDS)
        report = check(asyncio.run(fleet.history()))

    with capsys.disabled():
        figures = tell("jetstream, workers", report, seed, monotonic() - began)
    assert report.violations == []
    assert figures["faults"] >= FAULTS * 0.85  # some find nothing to be done to
    assert report.numbers["tasks"] >= TASKS * 0.8  # what met a fault and may not be repeated stays away
