"""A private Postgres that Patroni keeps available: three servers, and an etcd that knows who leads.

with Patroni.start(tmp_path) as cluster:
    store = PostgresStore.from_url(cluster.url)   # names all hosts
    cluster.leader().kill()                       # the machine, as it seems: another one takes over by itself
"""

import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.servers.home import give, new_home
from tests.servers.postgres import DEBIAN, USER
from tests.servers.process import Process, ServerFailed, free_port
from tests.servers.replicated import wait_for

DATABASE = "postgres"
ETCD, PROGRAM = Path("/usr/bin/etcd"), Path("/usr/bin/patroni")
VERSION = 15  # Debian's, which its Patroni knows
NODES = 3
TTL_SECONDS = 5  # without word from the leader, until another one takes over
FOR = ("all", "replication")
PARAMETERS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "max_connections": "100",
    "wal_keep_size": "512MB",
}


class Node:
    """A server, and the Patroni that runs it."""

    def __init__(self, folder: Path, name: str, etcd_port: int) -> None:
        self.name = name
        self.home = new_home(folder)
        self.log = folder / f"{self.home.name}.log"
        self.port, self.api_port = free_port(), free_port()
        self._etcd_port = etcd_port
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def begin(self) -> None:
        """Start it, without waiting for Postgres."""
        settings = self.home / "patroni.json"
        settings.write_text(json.dumps(self._settings()))
        give(settings)
        self._process = Process([str(PROGRAM), str(settings)], self.home, self.log, end_signal=signal.SIGTERM)

    def kill(self) -> None:
        """The end of the machine, as it seems: of Patroni first, lest it starts Postgres again."""
        assert self._process is not None
        self._process.stop(signal.SIGKILL)
        self._process = None
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.home / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def takes_writes(self) -> bool:
        """Whether this one is the primary now."""
        with suppress(psycopg.Error), psycopg.connect(self.url, connect_timeout=2) as connection:
            return connection.execute("SELECT WHERE NOT pg_is_in_recovery()").rowcount == 1
        return False

    def _settings(self) -> dict[str, Any]:
        user = {"username": USER}
        return {
            "scope": "shop",
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.api_port}",
                "connect_address": f"127.0.0.1:{self.api_port}",
            },
            "etcd3": {"host": f"127.0.0.1:{self._etcd_port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_SECONDS,
                    "loop_wait": 1,
                    "retry_timeout": 3,
                    "primary_start_timeout": 0,
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": PARAMETERS},
                },
                "initdb": ["no-sync", {"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.home / "data"),
                "bin_dir": str(DEBIAN / str(VERSION) / "bin"),
                "authentication": {"superuser": user, "replication": user, "rewind": user},
                "pg_hba": ["local all all trust", *(f"host {one} all 127.0.0.1/32 trust" for one in FOR)],
                "parameters": {"unix_socket_directories": str(self.home)},
                "remove_data_directory_on_diverged_timelines": True,
            },
            "watchdog": {"mode": "off"},
        }


class Patroni:
    """Nodes, and the etcd beside them."""

    def __init__(self, nodes: list[Node]) -> None:
        """Use `Patroni.start`."""
        self.nodes = nodes

    @classmethod
    @contextmanager
    def start(cls, folder: Path) -> Iterator[Self]:
        for program in (ETCD, PROGRAM):
            if not program.exists():
                raise ServerFailed(f"{program.name} is not installed; run: make servers")
        with ExitStack() as stack:
            port = stack.enter_context(_etcd(folder))
            nodes = [stack.enter_context(Node(folder, f"node{n}", port)) for n in range(NODES)]
            for node in nodes:
                node.begin()
            cluster = cls(nodes)
            cluster.wait_until_replicated()
            yield cluster

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://{USER}@{hosts}/{DATABASE}"

    def leader(self) -> Node:
        """Whoever leads; waits until somebody does."""
        found: list[Node] = []

        def look() -> bool:
            found[:] = [node for node in self.nodes if node.takes_writes()]
            return bool(found)

        wait_for(look, "there is a primary", seconds=90)
        return found[0]

    def switch_over(self) -> None:
        """Have another one lead, by Patroni's API."""
        old = self.leader()
        order = json.dumps({"leader": old.name}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{old.api_port}/switchover", order, method="POST")

        def is_accepted() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:
                    return bool(reply.status == 200)
            except urllib.error.HTTPError as error:
                if error.code != 412:  # it has not yet settled on a synchronous standby
                    raise
                return False

        wait_for(is_accepted, "the switchover is accepted", every=0.2)

    def wait_until_replicated(self) -> None:
        """Until every node follows the leader, and one of them synchronously."""

        def look() -> bool:
            question = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
            with suppress(psycopg.Error), psycopg.connect(self.leader().url) as connection:
                states = [row[0] for row in connection.execute(question)]
                return len(states) == len(self.nodes) - 1 and "sync" in states
            return False

        wait_for(look, "every node follows the leader", every=0.1, seconds=90)


@contextmanager
def _etcd(folder: Path) -> Iterator[int]:
    home = new_home(folder)
    port, peers = free_port(), free_port()
    here, beside = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    options = {
        "data-dir": home / "data",
        "listen-client-urls": here,
        "advertise-client-urls": here,
        "listen-peer-urls": beside,
        "initial-advertise-peer-urls": beside,
        "initial-cluster": f"default={beside}",
    }
    command = [str(ETCD), *(f"--{name}={value}" for name, value in options.items())]
    process = Process(command, home, folder / f"{home.name}.log", end_signal=signal.SIGKILL)
    try:
        process.wait_until(lambda: _is_healthy(here))
        yield port
    finally:
        process.stop(signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


def _is_healthy(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1) as reply:
        return b"true" in reply.read()
    return False
