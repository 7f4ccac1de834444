"""`windlass serve --processes`, its processes, and clients that know which process they are connected to."""

import http.client
import subprocess
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Self

from tests.servers.process import free_port
from tests.system.fleet import ROOT
from tests.system.supervised import Supervised


class ServerProcesses(Supervised):
    """A supervisor and its server processes."""

    started = "serving"

    def __init__(self, folder: Path, number: int, *options: str, store: str = "") -> None:
        self.port = free_port()
        self._clients: list[Client] = []
        place = store or f"sqlite:///{folder.absolute()}/windlass.db"
        command = ("serve", "--processes", str(number), "--port", str(self.port), "--store", place, *options)
        super().__init__(folder / "serve.log", ROOT, {"TMPDIR": str(folder)}, *command)

    def __exit__(self, *raised: object) -> None:
        if self.is_running:
            self.parent.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.parent.wait(20)
        super().__exit__(*raised)
        for client in self._clients:
            client.close()

    def owner(self, client_port: int) -> int | None:
        """The server process that has accepted the connection from this port."""
        ends = f":{self.port:04X} 0100007F:{client_port:04X} "
        for line in Path("/proc/net/tcp").read_text().splitlines():
            if ends in line:
                inode = f"socket:[{line.split()[9]}]"
                return next((pid for pid in self.children if inode in _open_files(pid)), None)
        return None

    def client(self, key: str = "") -> "Client":
        self._clients.append(Client(self.port, key))
        return self._clients[-1]


def _open_files(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(str(one.readlink()))
    return found


class Client:
    """One connection that is kept alive; a request after a failure opens another."""

    def __init__(self, port: int, key: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    @property
    def port(self) -> int:
        """The client's own port; 0 if it is not connected."""
        return self._connection.sock.getsockname()[1] if self._connection.sock else 0

    def __call__(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        headers = self._headers | ({"content-type": "application/json"} if body else {})
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()


class Load:
    """Clients that send requests without a pause, each on its own connection."""

    def __init__(self, server: ServerProcesses, number: int, key: str = "", path: str = "/healthz") -> None:
        self.clients = [server.client(key) for _ in range(number)]
        self.statuses: Counter[int] = Counter()
        self.failed: list[int] = []  # ports of connections that broke
        self.slowest = 0.0
        self._path = path
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(client,)) for client in self.clients]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(30)
        for client in self.clients:
            client.close()

    def _run(self, client: Client) -> None:
        while not self._ended.is_set():
            port, began = client.port, monotonic()
            try:
                self.statuses[client("GET", self._path)[0]] += 1
            except (OSError, http.client.HTTPException):
                self.failed.append(port)
            self.slowest = max(self.slowest, monotonic() - began)
