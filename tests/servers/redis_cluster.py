"""A private Redis or Valkey Cluster for tests: three primaries with a replica each.

with Cluster.start(tmp_path) as cluster:
    store = RedisStore.from_url(cluster.url)
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, Self

import redis
from redis.crc import key_slot

from tests.servers.process import ServerFailed
from tests.servers.redis import NAMES, Program, Redis

PRIMARIES = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 1000
READY_SECONDS = 60.0
SETTINGS = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
    "cluster-replica-validity-factor": "0",
    "repl-diskless-sync-delay": "0",
    "appendonly": "yes",
    "appendfsync": "everysec",
}


class HasPort(Protocol):
    """A server of this machine."""

    port: int


class Cluster:
    """Six servers. Primaries and replicas are asked for each time, as a failover exchanges them."""

    def __init__(self, nodes: list[Redis], stack: ExitStack) -> None:
        """Use `Cluster.start`."""
        self.nodes = nodes
        self._stack = stack

    @classmethod
    def start(cls, folder: Path, *, program: Program = "valkey") -> Self:
        """A new, empty cluster that is up. ServerFailed when it does not come up."""
        with ExitStack() as stack:
            nodes = [
                stack.enter_context(Redis.start(folder, program=program, settings=SETTINGS))
                for _ in range(2 * PRIMARIES)
            ]
            cluster = cls(nodes, stack.pop_all())
        try:
            cluster._join()
        except BaseException:
            cluster.close()
            raise
        return cluster

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{places}"

    def new_url(self) -> str:
        """The URL of a new, empty store in it."""
        return f"{self.url}?name=test-{next(NAMES)}"

    def owner(self, name: str) -> Redis:
        """The primary that has the slot of a store; none has it for a moment while it moves."""
        slot, found = key_slot(f"{{{name}}}".encode()), list[Redis]()

        def is_owned() -> bool:
            found[:] = [node for node in self.nodes if node.is_alive and self._owns(node, slot)]
            return bool(found)

        until(is_owned, f"a primary has slot {slot}")
        return found[0]

    def replica_of(self, primary: Redis) -> Redis:
        """A replica of that server."""
        return next(
            node
            for node in self.nodes
            if node.is_alive and (role := command(node, "ROLE"))[0] == b"slave" and role[2] == primary.port
        )

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _owns(self, node: Redis, slot: int) -> bool:
        if command(node, "ROLE")[0] != b"master":
            return False
        lines = command(node, "CLUSTER NODES")
        text = lines.decode() if isinstance(lines, bytes) else str(lines)
        for line in text.splitlines():
            _, _, flags, *rest = line.split()
            if "myself" in flags:
                ranges = [part.split("-") for part in rest[5:] if not part.startswith("[")]
                return any(int(one[0]) <= slot <= int(one[-1]) for one in ranges)
        return False

    def _join(self) -> None:
        primaries, replicas = self.nodes[:PRIMARIES], self.nodes[PRIMARIES:]
        for number, node in enumerate(primaries):
            first, last = SLOTS * number // PRIMARIES, SLOTS * (number + 1) // PRIMARIES - 1
            command(node, "CLUSTER ADDSLOTSRANGE", first, last)
            command(node, "CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            command(node, "CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        until(lambda: all(self._knows_all(node) for node in self.nodes), "all nodes know each other")
        for primary, replica in zip(primaries, replicas, strict=True):
            command(replica, "CLUSTER REPLICATE", id_of(primary))
        until(lambda: all(map(self._is_up, self.nodes)), "the cluster is up")

    def _knows_all(self, node: Redis) -> bool:
        return info(node)["cluster_known_nodes"] == str(len(self.nodes))

    def _is_up(self, node: Redis) -> bool:
        if info(node)["cluster_state"] != "ok":
            return False
        role = command(node, "ROLE")
        return role[0] == b"master" or role[3] == b"connected"


def command(node: "HasPort", *parts: str | int) -> Any:
    """Run a command on one server, without redis-py's reading of the reply."""
    client: Any = redis.Redis(port=node.port, protocol=2)
    client.response_callbacks.clear()
    try:
        return client.execute_command(*parts)
    finally:
        client.close()


def id_of(node: Redis) -> str:
    """The name of a node in its cluster."""
    found: bytes = command(node, "CLUSTER MYID")
    return found.decode()


def info(node: Redis) -> dict[str, str]:
    """What a node says of its cluster."""
    text: bytes = command(node, "CLUSTER INFO")
    return dict(line.split(":", 1) for line in text.decode().split("\r\n") if ":" in line)


def until(condition: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
    """Look until it is so; ServerFailed if it takes too long."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            raise ServerFailed(f"not within {seconds:g} s: {what}")
        threading.Event().wait(0.05)
