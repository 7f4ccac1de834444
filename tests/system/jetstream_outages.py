"""What is done to the owners and nodes of a store on JetStream, by lot, beside what is done to the fleet."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self

from tests.servers.nats import MEMORY, Nats
from tests.servers.nats_cluster import NatsCluster
from tests.system.fleet import Fleet, Schedule
from tests.system.history import now
from tests.system.jetstream.owners import Owners
from tests.system.storm import Storm

OWNERS = 3
USURP_SECONDS = 3.0
TAKEOVER_SECONDS = 3.0


class JetStreamFleet(Fleet):
    """A fleet on a NATS cluster, with owner processes that take over from each other without need."""

    cluster: NatsCluster
    owners: Owners

    @classmethod
    @contextmanager
    def on_cluster(cls, folder: Path) -> Iterator[Self]:
        """With a cluster and owners of its own, until the end of the block."""
        with ExitStack() as stack:
            memory = MEMORY if MEMORY.is_dir() else None
            cluster = stack.enter_context(NatsCluster.start(folder, data=memory))
            places = ",".join(f"{host}:{port}" for host, port in cluster.places)
            url = f"nats://{places}/fleet"
            settings: list[dict[str, Any]] = [
                {"usurp_after": USURP_SECONDS, "depth": 4} for _ in range(OWNERS)
            ]
            owners = stack.enter_context(Owners([url] * OWNERS, folder, settings))
            owners.start_all()
            fleet = cls(folder, server=url)
            fleet.cluster, fleet.owners = cluster, owners
            stack.callback(fleet.close)
            yield fleet


class JetStreamStorm(Storm):
    """Faults for a fleet on JetStream: those of any fleet, those of owners, and those of nodes."""

    def __init__(self, fleet: JetStreamFleet, random: Random, schedule: Schedule, **settings: Any) -> None:
        super().__init__(fleet, random, schedule, **settings)
        self.cluster, self.owners = fleet.cluster, fleet.owners
        self.is_disturbed = False  # by something that another disturbance would get in the way of

    # -- owners --------------------------------------------------------------------------------------

    def kill_owner(self) -> None:
        """Kill the owner, and start another standby."""
        if self._is_taken():
            return
        number, began = self.owners.last(), now()
        self.owners.kill(number)
        self.owners.start(number)
        self.schedule.after(TAKEOVER_SECONDS, lambda: self._heal("restart", began))

    def stop_owner(self) -> None:
        """Ask the owner to hand over, and start another standby."""
        if self._is_taken():
            return
        number, began = self.owners.last(), now()
        self.owners.terminate(number)
        self.owners.start(number)
        self.schedule.after(TAKEOVER_SECONDS, lambda: self._heal("handover", began))

    def freeze_owner(self, seconds: float = 3.0) -> None:
        if self._is_taken():
            return
        number, began = self.owners.last(), now()
        self.owners.freeze(number)

        def thaw() -> None:
            self.owners.thaw(number)
            self._heal("restart", began)

        self.schedule.after(seconds, thaw)

    # -- nodes ---------------------------------------------------------------------------------------

    def kill_node(self, seconds: float = 1.0) -> None:
        """Kill a node for that long, more often than not the leader of the log."""
        self._lose_node(lambda node: node.stop(signal.SIGKILL), seconds)

    def stop_node(self, seconds: float = 1.0) -> None:
        """Stop a node for that long, as one should."""
        self._lose_node(lambda node: node.stop(), seconds)

    def _lose_node(self, stop: Callable[[Nats], None], seconds: float) -> None:
        if self._is_taken():
            return
        began = now()
        leader = self.cluster.leader("WL_fleet") if self.random.random() < 0.6 else None
        node = leader or self.random.choice(self.cluster.nodes)
        stop(node)

        def come_back() -> None:
            node.launch()
            self.cluster.wait_until_ready()
            self._heal("outage", began)

        self.schedule.after(seconds, come_back)

    # -- all of it -----------------------------------------------------------------------------------

    def _is_taken(self) -> bool:
        """Whether it has to be something else; otherwise the disturbance is begun."""
        if self.is_disturbed:
            self.kill()
            return True
        self.is_disturbed = True
        return False

    def _heal(self, kind: str, began: int) -> None:
        self.fleet.note(kind, began=began)
        self.is_disturbed = False

    def faults(self) -> dict[Callable[[], None], int]:
        """Every fault there is, and how often it comes among a hundred."""
        return {
            self.kill: 20,
            self.terminate: 8,
            self.freeze: 8,
            self.kill_producer: 6,
            self.kill_leader: 6,
            self.kill_child: 4,
            self.kill_owner: 20,
            self.stop_owner: 10,
            self.freeze_owner: 8,
            self.kill_node: 6,
            self.stop_node: 4,
        }
