"""The same on Redis, and the server and the network fail as well: every task ends, and exactly once."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.examples import FULL
from tests.system.fleet import Schedule
from tests.system.redis_outages import RedisFleet, RedisStorm

SECONDS = 20
WISHES = 1500 if FULL else 400  # with two tasks each or more
pytestmark = [pytest.mark.system, pytest.mark.more, pytest.mark.timeout(150)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[RedisFleet]:
    with RedisFleet.on_server(tmp_path) as fleet:
        yield fleet


def test_every_task_ends_once_whatever_fails(fleet: RedisFleet) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    print(f"WINDLASS_SEED={seed}")  # noqa: T201 - to run the same storm again
    schedule = Schedule()
    storm = RedisStorm(fleet, Random(seed), schedule)
    for second in range(1, SECONDS + 1, 2):
        schedule.at(second, storm.kill)
    schedule.at(2.5, lambda: storm.freeze(2.5 * fleet.settings["lease"]))
    schedule.at(3.3, storm.lose_replies)
    schedule.at(5.3, storm.crash)
    schedule.at(7.3, storm.end_connections)
    schedule.at(8.3, storm.kill_producer)
    schedule.at(9.3, storm.lose_requests)
    schedule.at(11.3, storm.end_listeners)
    schedule.at(12.3, storm.crash)
    schedule.at(13.5, storm.forget_scripts)
    schedule.at(14.3, storm.cut)
    schedule.at(15.3, storm.lose_replies)
    schedule.at(17.3, lambda: storm.stay_away(1.0))

    fleet.start_ready(4)
    storm.produce("p", seed=seed, wishes=WISHES, per_second=WISHES / SECONDS)
    schedule.run()
    storm.wait_for_producers(40)
    fleet.drain(40)
    report = fleet.checked()

    assert report.numbers["tasks"] >= 2 * WISHES
    assert report.numbers["fault kill"] >= SECONDS / 2
    assert report.numbers["fault halt"] == 1
    assert report.numbers["fault restart"] == 2
    assert report.numbers["attempts lost with a worker"] > 0
    assert fleet.proxy.lost["reply"] >= 3
