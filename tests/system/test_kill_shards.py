"""The same on several shards: they come and go, one of them fails, and every task ends exactly once."""

import os
import secrets
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Self
from uuid import uuid4

import pytest

from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy
from tests.system.fleet import Fleet, Schedule
from tests.system.history import now
from tests.system.outages import SETTINGS, ServerFleet, ServerStorm
from tests.system.storm import Storm
from windlass._model.record import ShardStatus
from windlass._stores.shards.routes import rendezvous

SECONDS = 22
WISHES = 400
TENANTS = [f"t{number}" for number in range(12)]
ON_A = [one for one in ["", *TENANTS] if rendezvous(f"default\0{one}", "ab") == "a"]  # the rest is on b
SOON = timedelta(seconds=6)  # more than a process may enqueue without looking at the map
SECOND = 1_000_000_000
pytestmark = [pytest.mark.system, pytest.mark.full, pytest.mark.timeout(240)]


def change(fleet: Fleet, what: Callable[[Any], Coroutine[Any, Any, Any]], after: timedelta = SOON) -> Any:
    """Change the shards as `windlass shards` does."""
    admin = fleet.app.shards()
    admin.effective_after = after
    return fleet.app._loop.run(what(admin))


def states(fleet: Fleet) -> dict[str, ShardStatus]:
    return {one.name: one for one in change(fleet, lambda admin: admin.list())}


def spread(fleet: Fleet, *shards: str, after: timedelta = SOON) -> None:
    """Spread the tenants of the only queue over these shards. Tasks that have none go together."""
    change(fleet, lambda admin: admin.route("default", shards, by_tenant=True), after)


def write(path: Path, **urls: str) -> str:
    """Write a file of shards; return the URL of the store."""
    path.write_text("\n".join(["[shards]", *(f'{name} = "{url}"' for name, url in urls.items())]))
    return f"shards://{path}"


def a_seed() -> int:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    print(f"WINDLASS_SEED={seed}")  # noqa: T201 - to run the same storm again
    return seed


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    url = write(tmp_path / "shards.toml", **{name: f"sqlite:///{tmp_path}/{name}.db" for name in "ab"})
    fleet = Fleet(tmp_path, server=url)
    yield fleet
    fleet.close()


def test_shards_are_added_and_drained_under_load(fleet: Fleet) -> None:
    seed, schedule = a_seed(), Schedule()
    storm = Storm(fleet, Random(seed), schedule)
    spread(fleet, "a", "b", after=timedelta(0))
    files = {name: f"sqlite:///{fleet.folder}/{name}.db" for name in "abc"}
    schedule.at(1.5, lambda: write(fleet.folder / "shards.toml", **files))
    schedule.at(2, lambda: change(fleet, lambda admin: admin.add("c")))
    schedule.at(9, lambda: spread(fleet, "a", "c"))
    schedule.at(16, lambda: change(fleet, lambda admin: admin.drain("b")))
    for second in range(1, SECONDS + 1, 2):
        schedule.at(second + 0.3, storm.kill)

    fleet.start_ready(3)
    storm.produce("p", seed=seed, wishes=WISHES, per_second=WISHES / SECONDS, tenants=TENANTS)
    schedule.run()
    storm.wait_for_producers(60)
    fleet.drain(60)
    found = states(fleet)
    report = fleet.checked()

    assert report.numbers["tasks"] >= 2 * WISHES
    assert report.numbers["fault kill"] >= SECONDS / 2
    assert (found["b"].state, found["b"].unfinished) == ("draining", 0)
    assert all(one.tasks > 20 for one in found.values())


class ShardFleet(ServerFleet):
    """A fleet on two shards: a file, and a server that the processes reach by way of a proxy."""

    @classmethod
    @contextmanager
    def on_server(cls, folder: Path) -> Iterator[Self]:
        query = f"?schema=t_{uuid4().hex[:8]}"
        file = f"sqlite:///{folder}/a.db"
        with Postgres.start(folder, settings=SETTINGS) as postgres, Proxy.start(postgres.url) as proxy:
            fleet = cls(
                folder,
                server=write(folder / "straight.toml", a=file, b=postgres.url + query),
                way=write(folder / "shards.toml", a=file, b=proxy.url + query),
            )
            fleet.postgres, fleet.proxy = postgres, proxy
            try:
                yield fleet
            finally:
                proxy.thaw()
                fleet.close()


def test_a_shard_that_fails_costs_nothing_and_does_not_hold_up_the_other(tmp_path: Path) -> None:
    seed, schedule = a_seed(), Schedule()
    with ShardFleet.on_server(tmp_path) as fleet:
        storm = ServerStorm(fleet, Random(seed), schedule)
        spread(fleet, "a", "b", after=timedelta(0))
        away: list[int] = []
        schedule.at(2.3, storm.cut_after_commits)
        schedule.at(4.5, lambda: (away.append(now()), storm.stay_away(6.0)))
        schedule.at(13.3, lambda: storm.restart("immediate"))
        schedule.at(16.3, storm.cut)
        for second in range(1, SECONDS + 1, 3):
            schedule.at(second + 0.1, storm.kill)

        fleet.start_ready(3)
        storm.produce("p", seed=seed, wishes=WISHES, per_second=WISHES / SECONDS, tenants=TENANTS)
        storm.produce("q", seed=seed, wishes=WISHES, per_second=WISHES / SECONDS, tenants=ON_A)
        schedule.run()
        storm.wait_for_producers(90)
        fleet.drain(60)
        found = states(fleet)
        report = fleet.checked()

    meanwhile = [run for run in fleet.runs() if SECOND < run.started.at - away[0] < 5 * SECOND]
    assert report.numbers["tasks"] >= WISHES
    assert report.numbers["fault restart"] == report.numbers["fault outage"] == 1
    assert all(one.tasks > 20 for one in found.values())
    assert len(meanwhile) > 10, "the other shard stood still, too"
