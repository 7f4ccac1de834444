"""A replicated Postgres that fails over again and again, under load: nothing acknowledged is lost.

WINDLASS_FAILOVERS says how often; WINDLASS_SEED makes the same plan again.
"""

import asyncio
import json
import os
import secrets
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from tests.system.checker import check
from tests.system.failovers import Failovers, ReplicatedFleet, figures
from tests.system.fleet import Schedule, wait_until
from tests.system.storm import Storm

FAILOVERS = int(os.environ.get("WINDLASS_FAILOVERS", "24"))
SECONDS = 6.0  # that one takes at least, with the recovery of the old primary
WISHES_A_SECOND = 25  # of each producer, with about three tasks each
LONG_OUTAGE = 12.0  # so that pauses have grown
DRAIN_SECONDS = 120
MEDIAN_SECONDS = 2.0  # from the promotion to the first claim, on a machine that does other things besides


@pytest.mark.chaos
def test_nothing_acknowledged_is_lost_by_failovers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    random = Random(seed)
    with ReplicatedFleet.on_servers(tmp_path, standbys=2) as fleet:
        fleet.settings |= {"lease": 10.0, "heartbeat": 2.0}
        failovers, storm = Failovers(fleet), Storm(fleet, random, Schedule())
        began = monotonic()
        fleet.start_ready(3)
        wishes = round(FAILOVERS * SECONDS * WISHES_A_SECOND)
        for name in ("p0", "p1"):
            storm.produce(name, seed=seed, wishes=wishes, per_second=WISHES_A_SECOND)
        kinds = [failovers.crash, failovers.switch_over, failovers.cut_off, failovers.freeze]
        for number in range(FAILOVERS):
            fleet.enqueue("nap", 300, seconds=0.3)  # so that there is something to claim afterwards
            seconds = LONG_OUTAGE if number % 10 == 4 else random.uniform(0.0, 3.0)
            kinds[number % len(kinds)](seconds)
            if number % 3 == 0:
                storm.kill()
            failovers.recover()
            if number % 6 == 5:
                failovers.lose_standbys(random.uniform(0.5, 3.0))

        storm.wait_for_producers(DRAIN_SECONDS)
        fleet.drain(DRAIN_SECONDS)
        history = asyncio.run(fleet.history())
        report, seconds_of = check(history), figures(failovers.done, history)

    with capsys.disabled():
        print(f"\nfailovers of Postgres, WINDLASS_SEED={seed}, {monotonic() - began:.0f} s")  # noqa: T201
        print(report.lines())  # noqa: T201
        print(json.dumps(seconds_of))  # noqa: T201
    assert report.violations == []
    assert len(failovers.done) == FAILOVERS
    assert max(numbers["after promotion"][0] for numbers in seconds_of.values()) <= MEDIAN_SECONDS


@pytest.mark.chaos
def test_with_an_asynchronous_standby_tasks_are_lost_and_it_is_noticed(tmp_path: Path) -> None:
    """The contrast: if the harness could not see this, its silence above would prove nothing."""
    with ReplicatedFleet.on_servers(tmp_path, straight=True, settings={}) as fleet:
        servers = fleet.servers
        fleet.start_ready(1)
        fleet.enqueue("quick", 100)
        wait_until(fleet.is_drained, 30, what="every task ends")
        servers.primary.cut_off()  # from its standby only
        fleet.enqueue("quick", 100)
        servers.primary.kill()
        servers.promote()
        fleet.drain(60)
        report = check(asyncio.run(fleet.history()))

    lost = [violation for violation in report.violations if violation.rule == "lost"]
    assert len(lost) == 100
