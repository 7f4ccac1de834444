"""The same on JetStream: owners, nodes and the network fail, and every acknowledged change stands, once."""

import asyncio
import os
import secrets
from pathlib import Path

import pytest

from tests.examples import FULL
from tests.system.jetstream.campaign import Campaign, Plan

SECONDS = 30 if FULL else 6
NODE_FAULTS = (1.0, 4.0) if FULL else (SECONDS, SECONDS)  # after one, NATS may take 10 s to elect a leader
pytestmark = [pytest.mark.system, pytest.mark.more, pytest.mark.timeout(240)]


def test_what_was_acknowledged_stands_whatever_fails(tmp_path: Path) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    plan = Plan(seed, SECONDS, usurp_after=0.6, owner_faults=(0.2, 1.0), node_faults=NODE_FAULTS)
    with Campaign.started(plan, tmp_path) as campaign:
        report = asyncio.run(campaign.run())

    print(f"WINDLASS_SEED={seed}\n{report.lines()}")  # noqa: T201 - seen if the test fails
    assert report.violations == []
    assert report.numbers["acknowledged"] > 0
    assert report.numbers["takeovers"] > 0
    assert campaign.faults.numbers.total() > 1
