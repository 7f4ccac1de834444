"""A campaign against a store on JetStream: load and faults, then what it has compared with what it said."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from tests.loops.workers import pause
from tests.servers.nats import MEMORY
from tests.servers.nats_cluster import NODES, NatsCluster
from tests.servers.nats_proxy import NatsProxy
from tests.system.checker import Report, Violation
from tests.system.jetstream.account import Account, every_task
from tests.system.jetstream.disks import SmallDisk
from tests.system.jetstream.faults import Faults
from tests.system.jetstream.load import QUEUES, Load, opened
from tests.system.jetstream.old_store import write_old_store
from tests.system.jetstream.owners import Owners
from tests.system.jetstream.replay import difference, replayed, tables
from windlass._store.protocol import Store
from windlass._stores import open_store
from windlass._stores.jetstream.address import parse

SAMPLE = 300  # tasks whose attempts are looked at
CALM_SECONDS = 2.0


@dataclass(frozen=True)
class Plan:
    """How much of what."""

    seed: int
    seconds: float
    owners: int = 3
    usurp_after: float = 0.7  # seconds, on average, after which an owner takes over without need
    depth: tuple[int, ...] = (4, 6, 8)
    skew: tuple[float, ...] = (0.0, 600.0, -600.0)  # seconds by which the owners' clocks are wrong
    snapshot_every: float = 0.5  # seconds
    part_bytes: tuple[int, ...] = (700_000, 1_500, 8_000)
    checkpoint_frames: tuple[int, ...] = (16_000, 400, 50)
    owner_faults: tuple[float, float] = (0.1, 1.5)  # seconds between two
    network_faults: tuple[float, float] = (0.1, 1.0)
    node_faults: tuple[float, float] = (3.0, 9.0)
    batch: int = 40
    has_small_disks: bool = False  # which are full now and then; for root only
    old_schema: int | None = None  # the version that the store begins with, to be migrated
    old_tasks: int = 10_000


class Campaign:
    """One store on a cluster of its own, with its owners."""

    def __init__(
        self,
        plan: Plan,
        cluster: NatsCluster,
        owners: Owners,
        ways: list[NatsProxy],
        disks: list[SmallDisk],
    ) -> None:
        """Use `Campaign.started`."""
        self.plan, self.owners, self.ways = plan, owners, ways
        self.url = url(cluster.places)
        self.address = parse(self.url)
        self.random = Random(plan.seed)
        self.account = Account()
        self.faults = Faults(
            cluster, owners, ways=ways, disks=disks, stream=self.address.log_stream, random=self.random
        )

    @classmethod
    @contextmanager
    def started(cls, plan: Plan, folder: Path) -> Iterator["Campaign"]:
        """With a cluster and owners of its own, until the end of the block."""
        with ExitStack() as stack:
            number = plan.owners + NODES if plan.has_small_disks else 0
            disks = [stack.enter_context(SmallDisk()) for _ in range(number)]
            memory = MEMORY if MEMORY.is_dir() else None
            data = [disk.path for disk in disks[plan.owners :]] or memory
            cluster = stack.enter_context(NatsCluster.start(folder, data=data))
            ways = [
                stack.enter_context(NatsProxy.start(node.port, seed=plan.seed))
                for _ in range(plan.owners)
                for node in cluster.nodes
            ]
            places = [
                url([("127.0.0.1", way.port) for way in ways[first : first + NODES]])
                for first in range(0, len(ways), NODES)
            ]
            settings = [settings_of(plan, number) for number in range(plan.owners)]
            owners = stack.enter_context(Owners(places, folder, settings, disks[: plan.owners]))
            campaign = cls(plan, cluster, owners, ways, disks[plan.owners :])
            if plan.old_schema is not None:
                asyncio.run(campaign.write_old_store(plan.old_schema))
            owners.start_all()
            yield campaign

    async def write_old_store(self, schema: int) -> None:
        """Begin with tasks in an older schema, so that an owner has to migrate it."""
        ids = await write_old_store(
            self.address, self.owners.folder, schema=schema, tasks=self.plan.old_tasks, queues=QUEUES
        )
        self.account.acknowledged.update(ids)

    def handle(self) -> Store:
        return open_store(self.url)

    async def run(self) -> Report:
        """Load and faults at once; then calm, and the comparison."""
        async with opened(self.handle()) as store:
            until = monotonic() + self.plan.seconds
            load = Load(self.handle, self.random, self.account, until, batch=self.plan.batch)
            await asyncio.gather(load.run(), self._strike(until - CALM_SECONDS))
            violations = await self._judge(store)
            violations += await self._compare_replay()
            violations += await self._judge_next_owner(store)
        return Report(numbers=self._numbers(), violations=violations)

    def _numbers(self) -> Counter[str]:
        numbers = Counter(self.account.numbers)
        numbers["acknowledged"] = len(self.account.acknowledged)
        numbers["gaps above 0.5 s"] = len(self.account.gaps)
        numbers["longest gap in ms"] = round(max(self.account.gaps, default=0) * 1000)
        numbers.update({f"fault {name}": number for name, number in self.faults.numbers.items()})
        for way in self.ways:
            numbers.update({f"messages: {name}": number for name, number in way.lost.items()})
        return numbers

    async def _strike(self, until: float) -> None:
        """Faults until then; afterwards one owner is left, and the way to it is free."""
        faults, plan = self.faults, self.plan
        await asyncio.gather(
            faults.strike(faults.of_owners(), every=plan.owner_faults, until=until),
            faults.strike(faults.of_network(), every=plan.network_faults, until=until),
            faults.strike(faults.of_nodes(), every=plan.node_faults, until=until),
        )
        await pause(max(until - monotonic(), 0))
        self.account.numbers["takeovers"] = self.owners.takeovers()
        self.account.numbers["owners that ended by themselves"] = self.faults.ended
        self.account.numbers["snapshots"] = self.owners.snapshots()
        self.owners.leave_one()

    async def _judge(self, store: Store) -> list[Violation]:
        tasks = await every_task(store)
        self.account.numbers["tasks"] = len(tasks)
        violations = self.account.judge(tasks)
        sample = self.random.sample(list(self.account.ends), min(SAMPLE, len(self.account.ends)))
        for lease in sample:
            fences = [attempt.fence for attempt in await store.attempts(lease.task_id)]
            if len(set(fences)) < len(fences) or lease.fence not in fences:
                violations.append(Violation("attempts", f"of {lease}, which was settled: {fences}"))
        return violations

    async def _compare_replay(self) -> list[Violation]:
        """The live owner's file has what a cold replay of the log has."""
        folder = self.owners.folder / "replay"
        folder.mkdir(exist_ok=True)
        live = self.owners.live_file()
        again, void = await replayed(self.address, folder)
        self.account.numbers["void entries that are left"] = void
        return [Violation("cold replay", one) for one in difference(tables(live), again)]

    async def _judge_next_owner(self, store: Store) -> list[Violation]:
        """Kill the last owner: the next one has the same tasks."""
        before = await every_task(store)
        self.owners.replace_last()
        after = await every_task(store)
        changed = [task_id for task_id in before if after.get(task_id) != before[task_id]]
        return [Violation("the next owner has another task", task_id) for task_id in changed]


def url(places: list[tuple[str, int]]) -> str:
    return f"nats://{','.join(f'{host}:{port}' for host, port in places)}/storm"


def settings_of(plan: Plan, number: int) -> dict[str, Any]:
    """The settings of one of the owners."""
    return {
        "usurp_after": plan.usurp_after,
        "depth": plan.depth[number % len(plan.depth)],
        "skew": plan.skew[number % len(plan.skew)],
        "snapshot_every": plan.snapshot_every,
        "part_bytes": plan.part_bytes[number % len(plan.part_bytes)],
        "checkpoint_frames": plan.checkpoint_frames[number % len(plan.checkpoint_frames)],
    }
