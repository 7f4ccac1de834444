"""The long storm on JetStream: owners that take over all the time, and nodes and a network that fail.

WINDLASS_CHAOS_MINUTES says how long each campaign takes; the other variables are as for test_campaign.py.
"""

import asyncio
import os
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from tests.system.jetstream.campaign import Campaign, Plan

MINUTES = float(os.environ.get("WINDLASS_CHAOS_MINUTES", "5"))
TASKS_A_MINUTE = 5_000
FAULTS_A_MINUTE = 25
PLANS = {
    "every fault": Plan(0, 0),
    "owners only": Plan(0, 0, usurp_after=0.5, owner_faults=(0.0, 0.6), node_faults=(1e9, 1e9)),
}


@pytest.mark.chaos
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_was_acknowledged_stands_in_a_long_storm(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    plan = replace(plan, seed=seed, seconds=MINUTES * 60)
    with Campaign.started(plan, tmp_path) as campaign:
        result = asyncio.run(campaign.run())

    with capsys.disabled():
        print(f"\n{result.lines()}")  # noqa: T201
    assert result.violations == []
    assert result.acknowledged > TASKS_A_MINUTE * MINUTES
    assert result.faults.total() > FAULTS_A_MINUTE * MINUTES
