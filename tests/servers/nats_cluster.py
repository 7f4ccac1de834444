"""A private NATS cluster: three nodes, whose ways to each other can be blocked.

with NatsCluster.start(tmp_path) as cluster:
    cluster.isolate(cluster.leader("WL_shop"))
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Self

from tests.servers.lossy import Lossy
from tests.servers.nats import ALWAYS, NAMES, Nats
from tests.servers.process import ServerFailed

NODES = 3
STARTS = 3
READY_SECONDS = 60.0


class NatsCluster:
    """Three nodes. Each reaches each other one by a proxy of its own, unless they are not to be blocked."""

    def __init__(self, nodes: list[Nats], ways: dict[tuple[int, int], Lossy], stack: ExitStack) -> None:
        """Use `NatsCluster.start`."""
        self.nodes = nodes
        self._ways = ways
        self._stack = stack

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        data: Path | Sequence[Path] | None = None,
        sync: str = ALWAYS,
        proxies: bool = True,
    ) -> Self:
        """A new, empty cluster that is up. ServerFailed when it does not come up.

        `data` is where the nodes keep their data: one folder, or one for each. Without proxies nodes talk
        directly, as fast as they can; `isolate` does nothing then.
        """
        places = [data] * NODES if data is None or isinstance(data, Path) else [*data]
        for left in reversed(range(STARTS)):
            cluster = cls._made(folder, places, sync, proxies=proxies)
            try:
                for node in cluster.nodes:
                    node.launch()
                cluster.wait_until_ready()
            except ServerFailed as failure:
                cluster.close()
                if not left or "address already in use" not in str(failure):
                    raise
            except BaseException:
                cluster.close()
                raise
            else:
                return cluster
        raise AssertionError("unreachable")

    @classmethod
    def _made(cls, folder: Path, places: Sequence[Path | None], sync: str, *, proxies: bool) -> Self:
        with ExitStack() as stack:
            nodes = [
                stack.enter_context(Nats(folder, f"n{number}", data=place, sync=sync))
                for number, place in enumerate(places)
            ]
            ways = {
                (one, other): stack.enter_context(Lossy.start(nodes[other].route_port))
                for one in range(NODES)
                for other in range(NODES)
                if proxies and one != other
            }
            for number, node in enumerate(nodes):
                direct = [] if proxies else [other.route_port for other in nodes if other is not node]
                node.connect_to([way.port for (one, _), way in ways.items() if one == number] or direct)
            return cls(nodes, ways, stack.pop_all())

    def wait_until_ready(self) -> None:
        """Wait until all nodes run, know each other and agree on a leader."""
        for node in self.nodes:
            node.wait_until_ready()
        until(lambda: all(map(self._knows_all, self.nodes)), "all nodes know each other")

    def _knows_all(self, node: Nats) -> bool:
        found = node.ask("jsz").get("meta_cluster") or {}
        return bool(found.get("leader")) and found.get("cluster_size") == len(self.nodes)

    @property
    def places(self) -> list[tuple[str, int]]:
        """Where clients reach the nodes."""
        return [("127.0.0.1", node.port) for node in self.nodes]

    def new_url(self) -> str:
        """The URL of a new, empty store in it."""
        places = ",".join(f"{host}:{port}" for host, port in self.places)
        return f"nats://{places}/test-{next(NAMES)}"

    def leader(self, stream: str) -> Nats | None:
        """The node that leads a stream, as far as the nodes that answer know."""
        names = {name for node in self.nodes if node.is_alive for name in leaders(node, stream)}
        return next((node for node in self.nodes if node.name in names), None)

    def isolate(self, node: Nats) -> None:
        """Let no byte pass between this node and the others, until `heal`; clients still reach it."""
        for way in self._ways_of(node):
            way.block()

    def heal(self) -> None:
        """Connect all nodes again."""
        for way in self._ways.values():
            way.cut()  # as after a cut cable that TCP has given up
            way.unblock()

    def _ways_of(self, node: Nats) -> list[Lossy]:
        number = self.nodes.index(node)
        return [way for pair, way in self._ways.items() if number in pair]

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def leaders(node: Nats, stream: str) -> set[str]:
    """The leader of a stream according to a node; none if it does not know one."""
    accounts = node.ask("jsz?accounts=1&streams=1").get("account_details") or []
    found = [one for account in accounts for one in account.get("stream_detail") or []]
    named = [(one.get("cluster") or {}).get("leader") for one in found if one["name"] == stream]
    return {name for name in named if name}


def until(condition: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
    """Look until it is so; ServerFailed if it takes too long."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            raise ServerFailed(f"not within {seconds:g} s: {what}")
        threading.Event().wait(0.05)
