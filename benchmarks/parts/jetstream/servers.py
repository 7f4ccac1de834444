"""NATS servers for runs, and the processes that own stores on them."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import nats.errors

from benchmarks.processes import ROOT, RunFailed, command, environment
from tests.servers.nats import Nats
from tests.servers.nats_cluster import NatsCluster, leaders
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.checks import presence
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.stream import StreamLog

NAMES = count()
OWNED_SECONDS = 60.0
LOOK_SECONDS = 0.02
TICKS = os.sysconf("SC_CLK_TCK")
OWNER, STANDBY = "owner", "standby"


class Servers:
    """The nodes of a cluster, or one node; every write is synced before it is acknowledged."""

    def __init__(self, nodes: Sequence[Nats], folder: Path) -> None:
        self.nodes = nodes
        self._folder = folder

    @contextmanager
    def store(self, owners: int = 1, tree: Path = ROOT) -> Iterator["OwnedStore"]:
        """A new, empty store with this many processes of a tree that own it or stand by."""
        places = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        monitor = ",".join(f"127.0.0.1:{node.monitor_port}" for node in self.nodes)
        name = f"bench-{next(NAMES)}"
        url = f"nats://{places}/{name}?replicas={len(self.nodes)}&monitor={monitor}"
        with ExitStack() as stack:
            stack.callback(lambda: asyncio.run(_delete(url)))
            store = OwnedStore(url, name, self._folder / name, tree, stack)
            store.start_owner()
            store.wait_for({OWNER: 1})
            for _ in range(owners - 1):
                store.start_owner()
            store.wait_for({OWNER: 1, STANDBY: owners - 1})
            yield store

    def leader(self, store: "OwnedStore") -> Nats:
        """The node that leads the log of a store."""
        names = {name for node in self.nodes if node.is_alive for name in leaders(node, f"WL_{store.name}")}
        return next(node for node in self.nodes if node.name in names)

    def described(self) -> dict[str, str]:
        found = self.nodes[0].ask("varz")
        return {"nats": f"{found.get('version')}; sync_interval always"}


@dataclass(frozen=True)
class Spent:
    """The processor time of owners and of nodes in seconds, and the size of the log."""

    owners: float
    nodes: float
    log_bytes: float


class Costs:
    """What the processes of one or several stores use."""

    def __init__(self, servers: Servers, *stores: "OwnedStore") -> None:
        self._servers, self._stores = servers, stores
        self._before = self._all()

    def spent(self) -> Spent:
        """Return what was used since the last call."""
        before, self._before = self._before, self._all()
        now = self._before
        return Spent(
            now.owners - before.owners, now.nodes - before.nodes, max(0, now.log_bytes - before.log_bytes)
        )

    def _all(self) -> Spent:
        return Spent(
            sum(processor_seconds(pid) for store in self._stores for pid in store.processes),
            sum(processor_seconds(node.pid) for node in self._servers.nodes),
            sum(asyncio.run(_log_bytes(store.url)) for store in self._stores),
        )


class OwnedStore:
    """A store, and the processes that own it or stand by."""

    def __init__(self, url: str, name: str, folder: Path, tree: Path, stack: ExitStack) -> None:
        self.url, self.name = url, name
        self._folder = folder
        self._tree = tree
        self._stack = stack
        self._folder.mkdir()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start_owner(self) -> None:
        """Start a process that owns the store or stands by, with an empty folder."""
        number = len(list(self._folder.iterdir()))
        place = self._folder / str(number)
        place.mkdir()
        line = [*command(self._tree), "owner", "--store", self.url, "--owner-folder", str(place)]
        with (place / "log").open("wb") as log:
            process = self._stack.enter_context(
                subprocess.Popen(
                    line, cwd=self._tree, env=environment(self._tree), stdout=log, stderr=subprocess.STDOUT
                )
            )
        self._stack.callback(process.kill)
        self.processes[process.pid] = process

    def roles(self) -> dict[int, str]:
        """Which process owns the store, and which stand by, as they say."""
        with suppress(TimeoutError, nats.errors.Error, OSError):
            return asyncio.run(_roles(self.url))
        return {}

    def owner(self) -> int:
        """The process that owns the store."""
        return next(pid for pid, role in self.roles().items() if role == OWNER)

    def wait_for(self, numbers: dict[str, int]) -> None:
        """Wait until this many processes have each role."""
        deadline = time.monotonic() + OWNED_SECONDS
        while True:
            roles = list(self.roles().values())
            if all(roles.count(role) == number for role, number in numbers.items()):
                return
            if time.monotonic() > deadline:
                raise RunFailed(f"processes of {self.name} are {roles}, not {numbers}")
            time.sleep(LOOK_SECONDS)

    def stop(self, pid: int, by: signal.Signals) -> None:
        """Stop a process, and wait for its end."""
        process = self.processes.pop(pid)
        process.send_signal(by)
        process.wait()


async def _roles(url: str) -> dict[int, str]:
    address = parse(url)
    client = await connect(address)
    found = await presence(client, address)
    await client.close()
    return {int(name.rsplit("-", 2)[1]): role for name, role in found.items()}


async def _log_bytes(url: str) -> int:
    address = parse(url)
    client = await connect(address)
    extent = await StreamLog(client, address).extent()
    await client.close()
    return 0 if extent is None else extent.bytes


async def _delete(url: str) -> None:
    address = parse(url)
    client = await connect(address)
    for stream in (address.log_stream, address.base_stream):
        with suppress(nats.errors.Error):
            await client.jetstream().delete_stream(stream)
    await client.close()


def processor_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_megabytes(pid: int) -> float:
    """Return the memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def started(folder: Path, nodes: int) -> Iterator[Servers]:
    """Run one node, or a cluster of three, for the duration of the block."""
    place = folder / f"nats-{next(NAMES)}"
    place.mkdir()
    with Nats.start(place) if nodes == 1 else NatsCluster.start(place, proxies=False) as server:
        yield Servers([server] if isinstance(server, Nats) else server.nodes, place)
