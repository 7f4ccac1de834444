"""A Postgres under Patroni: machines die and the leader changes under load; nothing acknowledged is lost.

WINDLASS_SEED makes the same plan again.
"""

import asyncio
import json
import os
import secrets
from pathlib import Path
from random import Random
from time import monotonic
from uuid import uuid4

import pytest

from tests.servers.patroni import Patroni
from tests.system.checker import check
from tests.system.failovers import Failover, figures
from tests.system.fleet import Fleet, Schedule
from tests.system.history import now
from tests.system.storm import Storm

ROUNDS = 2  # of two failovers each
SECONDS = 25.0  # that a round takes
WISHES_A_SECOND = 25
DRAIN_SECONDS = 120
MEDIAN_SECONDS = 2.0  # from the promotion to the first claim, on a machine that does other things besides


@pytest.mark.chaos
def test_nothing_acknowledged_is_lost_under_patroni(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    done: list[Failover] = []
    with Patroni.start(tmp_path) as cluster:
        fleet = Fleet(tmp_path, server=f"{cluster.url}?schema=t_{uuid4().hex[:8]}")
        fleet.settings |= {"lease": 30.0, "heartbeat": 5.0}
        try:
            storm = Storm(fleet, Random(seed), Schedule())
            began = monotonic()
            fleet.start_ready(3)
            wishes = round(ROUNDS * SECONDS * WISHES_A_SECOND)
            storm.produce("p", seed=seed, wishes=wishes, per_second=WISHES_A_SECOND)
            for _ in range(ROUNDS):
                done += [crash(fleet, cluster), switch_over(fleet, cluster)]
            storm.wait_for_producers(DRAIN_SECONDS)
            fleet.drain(DRAIN_SECONDS)
            history = asyncio.run(fleet.history())
        finally:
            fleet.close()
    report, seconds_of = check(history), figures(done, history)

    with capsys.disabled():
        print(f"\nfailovers by Patroni, WINDLASS_SEED={seed}, {monotonic() - began:.0f} s")  # noqa: T201
        print(report.lines())  # noqa: T201
        print(json.dumps(seconds_of))  # noqa: T201
    assert report.violations == []
    assert max(numbers["after promotion"][0] for numbers in seconds_of.values()) <= MEDIAN_SECONDS


def crash(fleet: Fleet, cluster: Patroni) -> Failover:
    """Kill the leader's machine, as it seems; Patroni promotes another one when its word has run out."""
    fleet.enqueue("nap", 300, seconds=0.5)  # so that there is something to claim afterwards
    began, old = now(), cluster.leader()
    old.kill()
    struck = now()
    cluster.leader()
    promoted = now()
    fleet.note("outage", began=began)
    old.begin()
    cluster.wait_until_replicated()
    return Failover("crash", struck, promoted)


def switch_over(fleet: Fleet, cluster: Patroni) -> Failover:
    """Have another one lead."""
    fleet.enqueue("nap", 300, seconds=0.5)
    began, old = now(), cluster.leader()
    cluster.switch_over()
    struck = now()
    cluster.leader()
    promoted = now()
    assert not old.takes_writes()
    fleet.note("outage", began=began)
    cluster.wait_until_replicated()
    return Failover("switchover", struck, promoted)
