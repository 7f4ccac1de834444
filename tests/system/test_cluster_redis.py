"""Three stores on a Cluster under load: a primary dies, a slot moves, and no more than promised is lost."""

import asyncio
import signal
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from redis.crc import key_slot

from tests.loops.workers import eventually
from tests.servers.fixtures import running
from tests.servers.redis import Program, Redis
from tests.servers.redis_cluster import Cluster, command, id_of, until
from windlass import App, State, StoreUnavailable, WorkerSettings
from windlass._model.options import Defaults
from windlass._model.task import NewTask
from windlass._policy.input.payload import encode_payload
from windlass._store.protocol import Durability
from windlass.testing.conformance.steps import all_tasks

BATCH = 10
ENOUGH = 1_000  # tasks enqueued before the faults, and as many after them
BACKLOG = 300
WINDOW = 2.0  # seconds that a relaxed store may lose, as docs/redis.md says
DEADLINE = 120.0
SETTINGS = WorkerSettings(
    slots=20, lease=timedelta(seconds=6), heartbeat=timedelta(seconds=1), poll=timedelta(seconds=0.2)
)
pytestmark = [pytest.mark.system, pytest.mark.full, pytest.mark.timeout(400)]


class Shop:
    """A store with a producer and a worker: which tasks were acknowledged, and which ran, and when."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.acknowledged: dict[int, float] = {}
        self.runs: Counter[int] = Counter()
        self.longest_pause = 0.0
        self._numbers = count()
        self._closed = False

        @self.app.task(name="note")
        async def note(n: int) -> None:
            self.runs[n] += 1

    @property
    def durability(self) -> Durability:
        return self.app.store.promise.durability

    async def produce(self) -> None:
        """Enqueue until told to stop; a batch that fails is repeated, with the same ids."""
        last = monotonic()
        while not self._closed:
            await eventually(lambda: len(self.acknowledged) - len(self.runs) < BACKLOG, within=DEADLINE)
            numbers = [next(self._numbers) for _ in range(BATCH)]
            await self._enqueue([self._task(n) for n in numbers])
            now = monotonic()
            self.acknowledged |= dict.fromkeys(numbers, now)
            self.longest_pause = max(self.longest_pause, now - last)
            last = now

    def stop_production(self) -> None:
        self._closed = True

    async def wait_for_more(self) -> None:
        known = len(self.acknowledged)
        await eventually(lambda: len(self.acknowledged) >= known + ENOUGH, within=DEADLINE)

    async def ended(self) -> dict[int, State]:
        """Wait until every task of the store has ended; return their states by number."""

        async def look() -> dict[int, State]:
            with suppress(StoreUnavailable):
                tasks = await all_tasks(self.app.store)
                if all(task.finished_at for task in tasks):
                    return {msgspec.json.decode(task.payload)["n"]: task.state for task in tasks}
            return {}

        return await eventually(look, within=DEADLINE)

    def _task(self, n: int) -> NewTask:
        return self.app.builder.build("note", encode_payload({"n": n}), {}, Defaults())

    async def _enqueue(self, batch: list[NewTask]) -> None:
        async with asyncio.timeout(DEADLINE):
            while True:
                with suppress(StoreUnavailable):
                    await self.app.store.enqueue(batch)
                    return
                await asyncio.sleep(0)


@pytest.mark.parametrize("program", ["valkey", "redis"])
async def test_a_cluster_under_load_loses_only_what_its_promise_admits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: Program
) -> None:
    with running(lambda: Cluster.start(tmp_path, program=program)) as cluster:
        for node in cluster.nodes:
            command(node, "CONFIG SET", "appendfsync", "always")
        first, second, third = cluster.nodes[:3]
        names = [named(cluster, node, kind) for kind, node in (("a", first), ("b", first), ("c", second))]
        confirmed = Shop(f"{cluster.url}?name={names[0]}&replicas=1")
        unconfirmed, moved = (Shop(f"{cluster.url}?name={name}") for name in names[1:])
        shops = {"confirmed": confirmed, "unconfirmed": unconfirmed, "moved": moved}
        for shop in shops.values():
            await shop.app.open()
        workers = [shop.app.worker(SETTINGS) for shop in shops.values()]
        async with asyncio.timeout(3 * DEADLINE), asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.run())
            producers = [group.create_task(shop.produce()) for shop in shops.values()]
            await asyncio.gather(*(shop.wait_for_more() for shop in shops.values()))
            await asyncio.to_thread(move_at_once if program == "valkey" else move, names[2], second, third)
            await asyncio.to_thread(until, lambda: cluster.owner(names[2]) is third, "the slot has moved")
            killed_at = await asyncio.to_thread(fail_over, cluster, names[0])
            await asyncio.gather(*(shop.wait_for_more() for shop in shops.values()))
            for shop in shops.values():
                shop.stop_production()
            await asyncio.gather(*producers)
            ends = {name: await shop.ended() for name, shop in shops.items()}
            for worker in workers:
                worker.stop()
        durabilities = {name: shop.durability for name, shop in shops.items()}
        for shop in shops.values():
            await shop.app.close()

    lost = {name: set(shop.acknowledged) - set(ends[name]) for name, shop in shops.items()}
    with capsys.disabled():
        for name, shop in shops.items():
            again = sum(runs - 1 for runs in shop.runs.values())
            print(  # noqa: T201 - figures of docs/benchmarks.md
                f"\n  {program}, {name} ({durabilities[name]}): {len(shop.acknowledged)} acknowledged, "
                f"{len(lost[name])} lost, {again} run again, longest pause {shop.longest_pause:.1f} s",
                end="",
            )
    assert durabilities == {
        "confirmed": Durability.DURABLE,
        "unconfirmed": Durability.RELAXED,
        "moved": Durability.RELAXED,
    }
    assert all(set(states.values()) == {State.COMPLETED} for states in ends.values())
    assert not lost["confirmed"]
    assert not lost["moved"]
    assert not [n for n in lost["unconfirmed"] if unconfirmed.acknowledged[n] < killed_at - WINDOW]
    assert all(set(shop.runs) >= set(ends[name]) for name, shop in shops.items())


def named(cluster: Cluster, node: Redis, kind: str) -> str:
    """Return a name whose slot is on that node."""
    return next(name for name in (f"{kind}{n}" for n in count()) if cluster.owner(name) is node)


def fail_over(cluster: Cluster, name: str) -> float:
    """Kill the primary of a store, wait until its replica has taken over, and start it again; return when."""
    primary = cluster.owner(name)
    replica = cluster.replica_of(primary)
    killed_at = monotonic()
    primary.stop(signal.SIGKILL)
    until(lambda: command(replica, "ROLE")[0] == b"master", "the replica has taken over")
    primary.start_again()
    return killed_at


def move_at_once(name: str, source: Redis, target: Redis) -> None:
    """Move the slot of a store as Valkey 9 does."""
    slot = key_slot(f"{{{name}}}".encode())
    command(source, "CLUSTER MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id_of(target))


def move(name: str, source: Redis, target: Redis) -> None:
    """Move the slot of a store key by key."""
    slot = key_slot(f"{{{name}}}".encode())
    command(target, "CLUSTER SETSLOT", slot, "IMPORTING", id_of(source))
    command(source, "CLUSTER SETSLOT", slot, "MIGRATING", id_of(target))
    while keys := command(source, "CLUSTER GETKEYSINSLOT", slot, 100):
        command(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    for node in (target, source):
        command(node, "CLUSTER SETSLOT", slot, "NODE", id_of(target))
