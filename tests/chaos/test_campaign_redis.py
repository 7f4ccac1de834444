"""The long storm on Redis: what befalls workers, and besides the server, its connections and the network.

The environment says how much of it, as for test_campaign.py.
"""

import asyncio
import os
import secrets
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from tests.chaos.test_campaign import DRAIN_SECONDS, PRODUCERS, TASKS_A_WISH, WORKERS, plan, tell
from tests.servers.redis import Program
from tests.system.checker import check
from tests.system.fleet import Schedule
from tests.system.redis_outages import RedisFleet, RedisStorm

MINUTES = float(os.environ.get("WINDLASS_CHAOS_MINUTES", "5"))
TASKS = int(os.environ.get("WINDLASS_CHAOS_TASKS", "32000"))
FAULTS = int(os.environ.get("WINDLASS_CHAOS_FAULTS", "180"))


@pytest.mark.chaos
@pytest.mark.parametrize("program", ["valkey", "redis"])
def test_every_promise_holds_in_a_long_storm_on_redis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: Program
) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    schedule = Schedule()
    seconds = MINUTES * 60
    wishes = int(TASKS / TASKS_A_WISH / PRODUCERS)
    with RedisFleet.on_server(tmp_path, program) as fleet:
        storm = RedisStorm(fleet, Random(seed), schedule)
        began = monotonic()
        fleet.start_ready(WORKERS)
        for number in range(PRODUCERS):
            storm.produce(f"p{number}", seed=seed, wishes=wishes, per_second=wishes / seconds * 1.1)
        plan(storm, schedule, seconds, FAULTS)

        schedule.run()
        storm.wait_for_producers(DRAIN_SECONDS)
        fleet.drain(DRAIN_SECONDS)
        report = check(asyncio.run(fleet.history()))
        lost = fleet.proxy.lost

    with capsys.disabled():
        more = {f"lost {kind}": number for kind, number in sorted(lost.items())}
        figures = tell(program, report, seed, monotonic() - began, **more)
    assert report.violations == []
    assert figures["faults"] >= FAULTS * 0.85  # some find nothing to be done to
    assert report.numbers["tasks"] >= TASKS * 0.8  # what met a fault and may not be repeated stays away
    assert lost["reply"] > 10 or MINUTES < 5  # a short storm may have none
