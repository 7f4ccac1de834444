"""The long storm on JetStream: owners that take over all the time, and nodes and a network that fail.

WINDLASS_CHAOS_MINUTES says how long all of it takes; the other variables are as for test_campaign.py.
"""

import asyncio
import os
import secrets
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from tests.chaos.test_campaign import tell
from tests.system.jetstream.campaign import Campaign, Plan
from tests.system.jetstream.disks import can_mount

SECONDS = 60 * float(os.environ.get("WINDLASS_CHAOS_MINUTES", "10"))
NEVER = (SECONDS, SECONDS)
TASKS_A_SECOND = 50
FAULTS_A_SECOND = 0.4
PLANS = {
    "every fault": Plan(0, 0.5 * SECONDS),
    "owners and network": Plan(0, 0.25 * SECONDS, owner_faults=(0.0, 0.6), node_faults=NEVER),
    "full disks": Plan(0, 0.15 * SECONDS, has_small_disks=True),
    "migration": Plan(
        0, 0.1 * SECONDS, old_schema=4, usurp_after=0.3, owner_faults=(0.0, 0.4), node_faults=NEVER
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
    plan = replace(PLANS[name], seed=seed)
    began = monotonic()
    with Campaign.started(plan, tmp_path) as campaign:
        report = asyncio.run(campaign.run())

    with capsys.disabled():
        figures = tell(f"jetstream, {name}", report, seed, monotonic() - began)
    assert report.violations == []
    assert figures["acknowledged"] > TASKS_A_SECOND * plan.seconds
    assert figures["faults"] > FAULTS_A_SECOND * plan.seconds
