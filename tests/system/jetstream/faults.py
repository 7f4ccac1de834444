"""What is done to the owners of a store and to its NATS cluster, by lot: each fault, and how it heals."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic

from tests.loops.workers import pause
from tests.servers.nats import Nats
from tests.servers.nats_cluster import NatsCluster
from tests.servers.nats_proxy import Disturbance, NatsProxy
from tests.system.jetstream.disks import SmallDisk
from tests.system.jetstream.owners import Owners

Fault = Callable[[], Awaitable[None]]
HARSH = Disturbance(lost=0.1, doubled=0.15, late=0.3, delay=0.6)


class Faults:
    """Faults for a cluster and its owners. Each lasts until it is healed; the number of each is counted."""

    def __init__(
        self,
        cluster: NatsCluster,
        owners: Owners,
        *,
        ways: list[NatsProxy],
        disks: list[SmallDisk],
        stream: str,
        random: Random,
    ) -> None:
        """`ways` are from the owners to the nodes, all of one owner after the other; `disks` the nodes'."""
        self.cluster, self.owners = cluster, owners
        self.ways, self.disks, self.stream, self.random = ways, disks, stream, random
        self.numbers: Counter[str] = Counter()
        self.ended = 0  # owners, by themselves
        self._is_node_away = asyncio.Lock()  # one at a time: without a majority nothing can be served

    # -- owners ------------------------------------------------------------------------------------------

    async def kill_owner(self) -> None:
        number = self._any_owner()
        if number is not None:
            self.owners.kill(number)
            await self._pause(0, 0.5)
            self.owners.start(number)
            self.numbers["owner killed"] += 1

    async def stop_owner(self) -> None:
        """Ask an owner to hand over."""
        number = self._any_owner()
        if number is not None:
            self.owners.terminate(number)
            await self._pause(0, 0.5)
            self.owners.start(number)
            self.numbers["owner terminated"] += 1

    async def freeze_owner(self) -> None:
        number = self._any_owner()
        if number is not None:
            self.owners.freeze(number)
            await self._pause(0.5, 4)
            self.owners.thaw(number)
            self.numbers["owner frozen"] += 1

    async def fill_owner(self) -> None:
        """No room on an owner's disk."""
        self._any_owner()
        disk = self.random.choice(self.owners.disks)
        disk.fill()
        await self._pause(0.3, 2)
        disk.free()
        self.numbers["disk of an owner full"] += 1

    def _any_owner(self) -> int | None:
        self.ended += self.owners.revive()
        able = [number for number in self.owners.processes if self.owners.is_able(number)]
        return self.random.choice(able) if len(able) > 1 else None

    # -- the network between owners and nodes --------------------------------------------------------------

    async def disturb(self) -> None:
        """Lose, double and delay publishes to the log, and replies, of one owner or of all."""
        some = self._ways_of_one() if self.random.random() < 0.5 else self.ways
        for way in some:
            way.disturb(HARSH, subject=".log")
        await self._pause(0.5, 3)
        for way in some:
            way.spare()
        self.numbers["messages disturbed"] += 1

    async def cut(self) -> None:
        """Reset the connections of one owner."""
        for way in self._ways_of_one():
            way.cut()
        self.numbers["connections cut"] += 1

    async def block(self) -> None:
        """Let no byte pass between one owner and the nodes."""
        some = self._ways_of_one()
        for way in some:
            way.block()
        await self._pause(0.5, 4)
        for way in some:
            way.unblock()
        self.numbers["owner cut off"] += 1

    def _ways_of_one(self) -> list[NatsProxy]:
        nodes = len(self.cluster.nodes)
        first = self.random.randrange(len(self.ways) // nodes) * nodes
        return self.ways[first : first + nodes]

    # -- nodes -------------------------------------------------------------------------------------------

    async def kill_node(self) -> None:
        async with self._is_node_away:
            node = await self._some_node()
            node.stop(signal.SIGKILL)
            await self._pause(0.2, 3)
            await self._start(node)
            self.numbers["node killed"] += 1

    async def stop_node(self) -> None:
        async with self._is_node_away:
            node = await self._some_node()
            await asyncio.to_thread(node.stop)
            await self._pause(0.2, 2)
            await self._start(node)
            self.numbers["node terminated"] += 1

    async def freeze_node(self) -> None:
        async with self._is_node_away:
            node = await self._some_node()
            node.freeze()
            await self._pause(0.5, 6)
            node.thaw()
            self.numbers["node frozen"] += 1

    async def isolate_node(self) -> None:
        async with self._is_node_away:
            node = await self._some_node()
            self.cluster.isolate(node)
            await self._pause(1, 8)
            await asyncio.to_thread(self.cluster.heal)
            self.numbers["node isolated"] += 1

    async def kill_all_nodes(self) -> None:
        async with self._is_node_away:
            for node in self.cluster.nodes:
                node.stop(signal.SIGKILL)
            for node in self.cluster.nodes:
                node.launch()
            await asyncio.to_thread(self.cluster.wait_until_ready)
            self.numbers["all nodes killed"] += 1

    async def fill_node(self) -> None:
        """No room on a node's disk; it must be started again when there is."""
        async with self._is_node_away:
            number = self.random.randrange(len(self.disks))
            self.disks[number].fill()
            await self._pause(1, 4)
            self.disks[number].free()
            self.cluster.nodes[number].stop(signal.SIGKILL)
            await self._start(self.cluster.nodes[number])
            self.numbers["disk of a node full"] += 1

    async def _some_node(self) -> Nats:
        """More often than not the leader of the log."""
        leader = await asyncio.to_thread(self.cluster.leader, self.stream)
        if leader is not None and self.random.random() < 0.6:
            return leader
        return self.random.choice(self.cluster.nodes)

    async def _start(self, node: Nats) -> None:
        node.launch()
        await asyncio.to_thread(self.cluster.wait_until_ready)

    async def _pause(self, least: float, most: float) -> None:
        await pause(self.random.uniform(least, most))

    # -- all of it ---------------------------------------------------------------------------------------

    def of_owners(self) -> dict[Fault, int]:
        """Faults of owners, and how often each comes among a hundred."""
        disks = {self.fill_owner: 60} if self.owners.disks else {}
        return {self.kill_owner: 55, self.stop_owner: 20, self.freeze_owner: 25, **disks}

    def of_network(self) -> dict[Fault, int]:
        """Faults between owners and nodes, and how often each comes among a hundred."""
        return {self.disturb: 55, self.cut: 25, self.block: 20}

    def of_nodes(self) -> dict[Fault, int]:
        """Faults of nodes, and how often each comes among a hundred."""
        return {
            self.kill_node: 30,
            self.stop_node: 20,
            self.freeze_node: 20,
            self.isolate_node: 22,
            self.kill_all_nodes: 8,
            **({self.fill_node: 60} if self.disks else {}),
        }

    async def strike(self, faults: dict[Fault, int], *, every: tuple[float, float], until: float) -> None:
        """One of these faults after the other, with pauses of a length between these bounds."""
        while (next_at := monotonic() + self.random.uniform(*every)) < until:
            await pause(next_at - monotonic())
            await self.random.choices(list(faults), list(faults.values()))[0]()
